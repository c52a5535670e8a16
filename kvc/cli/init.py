"""`kvc init`."""

import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from kvc.diagnostics import KvcError, Source, fail
from kvc.specs.hf.importing import ImportOptions, spec_from_config


def init(
    from_hf: Annotated[str, typer.Option(metavar="CONFIG", help="a Hugging Face config.json, or its folder")],
    encoding: Annotated[str | None, typer.Option(help="how the history is stored; default: bf16")] = None,
    tp: Annotated[int | None, typer.Option(min=1, help="ranks of tensor parallelism")] = None,
    max_seq_len: Annotated[int | None, typer.Option(min=1, help="tokens of one sequence")] = None,
    name: Annotated[str | None, typer.Option(help="name of the spec; default: the file's or folder's")] = None,
    ignore_field: Annotated[list[str] | None, typer.Option(metavar="NAME", help="take a field as not there")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="file to write; default: stdout")] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the file if it exists")] = False,
) -> None:
    """Write a spec from the config.json of a model; no weights, no GPU and no transformers needed."""
    if output is not None and not force and os.path.lexists(output):
        raise _exists(output)
    options = ImportOptions(encoding, tp, max_seq_len, name, tuple(ignore_field or ()))
    text = spec_from_config(from_hf, options)
    if output is None:
        print(text, end="")
        return
    _write(output, text, force)
    print(f"wrote {output}; `kvc plan {output}` shows where its bytes go")


def _exists(output: Path) -> KvcError:
    return fail("KVC159", "the file exists already", source=Source(str(output)), help="`--force` replaces it")


def _write(output: Path, text: str, force: bool) -> None:
    """All of the file or nothing; without ``force`` one that appeared meanwhile stays. Raises KvcError (KVC159)."""
    try:
        handle, made = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            os.chmod(made, 0o666 & ~_umask())
            os.replace(made, output) if force else os.link(made, output)
        finally:
            Path(made).unlink(missing_ok=True)
    except FileExistsError:
        raise _exists(output) from None
    except OSError as error:
        help = "choose another path for -o"
        raise fail("KVC159", f"cannot write: {error.strerror}", source=Source(str(output)), help=help) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
