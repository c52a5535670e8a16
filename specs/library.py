"""The specs that come with kvc."""

from pathlib import Path

from kvc.diagnostics import Source, fail
from kvc.specs.suggestions import nearest, shortened

_FOLDER = Path(__file__).parent / "library"


def library_specs() -> dict[str, Path]:
    """Name -> file, sorted by name."""
    return {file.stem: file for file in sorted(_FOLDER.glob("*.yaml"), key=lambda file: file.stem)}


def locate(path_or_name: str | Path) -> tuple[Path, str]:
    """The file meant, and how messages cite it; an existing file wins over a name. Raises KvcError (KVC001)."""
    text = str(path_or_name)
    library = library_specs()
    if isinstance(path_or_name, str) and text in library and not Path(text).is_file():
        return library[text], library[text].name
    path = Path(path_or_name)
    try:
        if path.exists():
            return path, text
    except (OSError, ValueError):  # a name too long, or with a null byte: no file either
        pass
    message = f"`{shortened(text)}` is neither a file nor a spec of the library"
    help = nearest(path.name.removesuffix(".yaml"), library, "library")
    raise fail("KVC001", message, source=Source(text[:1000]), help=help)
