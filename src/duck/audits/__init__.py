"""Audits of unlearned models.

`auditing` audits any models; `duck.commands.audit` does so for a stored run. Both end in one of the
tiers: `quick`, `oracle` and, with a pool, `full`. A tier measures all models (`measurements`,
`memory`, `probes`, `pool_measures`, and the attacks in `attacks`), lets the `judge` compare the
unlearned model with retrained ones, checks the judge by `controls`, and returns an `Audit`
(`verdict`).
"""
