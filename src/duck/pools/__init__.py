"""Many models on random halves, resumable and mergeable: what attacks compare with."""
