"""A process that makes models for `engines.processes`: a setup and then groups on stdin, what was noted of each on stdout."""

import pickle
import signal
import sys

import torch

from duck.errors import DuckError
from duck.pools.engines import Setup
from duck.pools.members import Workshop
from duck.pools.plan import layout


def main() -> None:
    """Until the input ends: a parent that was killed leaves no worker behind."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the parent, which ends its workers
    answers, sys.stdout = (
        sys.stdout.buffer,
        sys.stderr,
    )  # what a model prints must not get between the answers
    torch.set_num_threads(1)
    setup: Setup = pickle.load(sys.stdin.buffer)
    device = torch.device(setup.device)
    who = layout(setup.plan, setup.data.to(device))
    workshop = Workshop(setup.plan, who, setup.files, device, setup.compiled)
    while True:
        try:
            group = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = pickle.dumps(workshop(group))
        except DuckError as error:
            answer = pickle.dumps(type(error)(*error.args))
        except Exception as error:
            answer = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
        try:
            answers.write(answer)
            answers.flush()
        except (
            BrokenPipeError
        ):  # the parent was killed while this model was made; its file is written
            return


if __name__ == "__main__":
    main()
