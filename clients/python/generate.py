"""What the Python client has of the field table. `../generate.py` writes it."""

import json
import textwrap
from pathlib import Path

from kinds import KINDS

PACKAGE = Path(__file__).resolve().parent / "python" / "taskdiag"
BEGIN = "    # Made by generate.py from the field table: begin\n"
END = "    # Made by generate.py from the field table: end\n"


def literal(text: str) -> str:
    """The text as Python writes it, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def fields_module(fields: list[dict[str, str]]) -> str:
    """The module `_fields_gen`."""
    groups = list(dict.fromkeys(field["group"] for field in fields))
    lines = [
        '"""The field table. Made by generate.py; change crates/taskdiag-core/src/field/table.rs instead."""',
        "",
        "from taskdiag._info import Info",
        "",
        "FIELDS: dict[str, Info] = {",
        *(f"    {literal(field['name'])}: {info(field)}," for field in fields),
        "}",
        '"""All fields by name, in the order of the table."""',
        "",
        "GROUPS: dict[str, tuple[str, ...]] = {",
    ]
    for group in groups:
        members = "".join(f"{literal(field['name'])}, " for field in fields if field["group"] == group)
        lines.append(f"    {literal(group)}: ({members.rstrip()}),")
    lines += ["}", '"""The fields of each group, which cost about the same and are read together."""']
    return "\n".join(lines) + "\n"


def info(field: dict[str, str]) -> str:
    """What the module says of a field."""
    keys = ("name", "group", "kind", "origin", "since", "access", "meaning")
    return f"Info({', '.join(literal(field.get(key, '')) for key in keys)})"


def row_stub(fields: list[dict[str, str]]) -> str:
    """The attributes of a row."""
    lines = []
    for field in fields:
        lines.append("    @property")
        lines.append(f"    def {field['name']}(self) -> {KINDS[field['kind']][0]} | None:")
        text = textwrap.wrap(field["meaning"], 92)
        quoted = "\n        ".join(text).replace("\\", "\\\\")
        lines.append(f'        """{quoted}"""' if not quoted.endswith('"') else f'        """{quoted} """')
    return "\n".join(lines) + "\n"


def made(fields: list[dict[str, str]]) -> dict[Path, str]:
    """The files and what they have."""
    stub = PACKAGE / "_taskdiag.pyi"
    before, rest = stub.read_text().split(BEGIN)
    _, after = rest.split(END)
    return {
        PACKAGE / "_fields_gen.py": fields_module(fields),
        stub: before + BEGIN + row_stub(fields) + END + after,
    }
