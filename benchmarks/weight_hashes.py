"""Check that a change of the code leaves every weight and score as it was.

    python benchmarks/weight_hashes.py before.json
    python benchmarks/weight_hashes.py after.json before.json

Runs `duck demo` and `duck compare` on the digits with one thread and writes the SHA-256 of the
tensors of each weight file, by its path, and the scores of each row. The metadata of the files have
times and dates, and do not count. With a second file it prints what differs and exits with 1.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

DUCK = [sys.executable, "-m", "duck"]
COMPARE = ["compare", "--data", "digits", "--methods", "all"]
COMMANDS = {
    "demo": ["demo", "--seed", "0", "--out", "demo", "--json"],
    "class": [*COMPARE, "--classes", "3", "--out", "class", "--json"],
    "fraction": [*COMPARE, "--fraction", "0.1", "--out", "fraction", "--json"],
}
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "DUCK_ARTIFACTS": "artifacts"}


def hash_tensors(path: Path) -> str:
    """Return the SHA-256 of the names, types, shapes and values of all tensors."""
    digest = hashlib.sha256()
    for name, tensor in sorted(load_file(path).items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def record() -> dict[str, Any]:
    """Run the commands in a temporary folder; return the hashes and the scores."""
    values: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in COMMANDS.items():
            process = subprocess.run(
                [*DUCK, *arguments],
                cwd=folder,
                env=os.environ | ENVIRONMENT,
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            for row in json.loads(process.stdout):
                key = f"{name}/{row.get('scenario', '')}/{row['method']}"
                values[key] = [row.get("scores"), row.get("error"), process.returncode]
        for path in sorted(Path(folder).rglob("*.safetensors")):
            values[str(path.relative_to(folder))] = hash_tensors(path)
    return values


def main() -> int:
    """Write the values and print the differences from earlier ones."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("out", type=Path, help="file to write")
    parser.add_argument("earlier", type=Path, nargs="?", help="file to compare with")
    args = parser.parse_args()
    values = record()
    args.out.write_text(json.dumps(values, indent=1) + "\n")
    if args.earlier is None:
        return 0
    before = json.loads(args.earlier.read_text())
    names = sorted({*before, *values})
    changed = [name for name in names if before.get(name) != values.get(name)]
    for name in changed:
        print(f"{name}: {before.get(name)} -> {values.get(name)}")
    print(f"{len(names) - len(changed)} of {len(names)} values are the same.")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
