"""CUDA C++ with inline PTX -> C++: every `asm` statement becomes calls of the functions in ptx.hpp.

Only the form is translated here. What an instruction means stands in `ptx.hpp`, under the name of its opcode;
one that is missing there does not compile.
"""

import re
from typing import NamedTuple

__all__ = ["TranslationError", "translate"]

_TYPES = {"r": "u32", "l": "u64", "f": "float", "h": "u16", "n": "u32"}
_REGISTERS = {
    "pred": "bool",
    "f32": "float",
    "b16": "u16",
    "b32": "u32",
    "u32": "u32",
    "b64": "u64",
    "u64": "u64",
}
_SHARED = re.compile(r"extern\s+__shared__\s+(?:__align__\(\d+\)\s+)?([\w ]+?)\s+(\w+)\[\];")
_ASM = re.compile(r"\basm\b\s*(?:volatile\b\s*)?\(")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


class TranslationError(ValueError):
    """The source has a form that is not known here."""


class _Operand(NamedTuple):
    constraint: str
    expression: str


def translate(preprocessed: str) -> str:
    """The text after the preprocessor, without asm statements and `__shared__`."""
    text = _SHARED.sub(r"\1* const \2 = static_cast<\1*>(machine::dynamic_shared());", preprocessed)
    if "__shared__" in text:
        raise TranslationError("static shared memory is not emulated")
    parts, at = [], 0
    while found := _ASM.search(text, at):
        end = _closing(text, found.end() - 1)
        parts += [text[at : found.start()], _statement(text[found.end() : end])]
        at = end + 1
    return "".join([*parts, text[at:]])


def _statement(inside: str) -> str:
    """One asm statement, without its semicolon."""
    sections = _split(inside, ":")
    program = "".join(_STRING.findall(sections[0])).replace("\\n", "\n").replace("%%", "%$")
    outputs = [_operand(text) for text in _split(sections[1], ",")] if len(sections) > 1 else []
    inputs = [_operand(text) for text in _split(sections[2], ",")] if len(sections) > 2 else []
    before = [_declare(i, operand) for i, operand in enumerate([*outputs, *inputs])]
    after = [
        f"{operand.expression} = p{i};"
        for i, operand in enumerate(outputs)
        if operand.constraint.lstrip("=+") != "f"
    ]
    labels = re.findall(r"^\s*(\w+):", program, re.MULTILINE)
    here = [f"__label__ {', '.join(labels)};"] if labels else []
    return "{ " + " ".join([*here, *before, *map(_instruction, _instructions(program)), *after]) + " }"


def _declare(number: int, operand: _Operand) -> str:
    """Sums are referred to, since an instruction may write them later; what is read is copied."""
    kind = operand.constraint.lstrip("=+")
    if kind not in _TYPES:
        raise TranslationError(f"operand constraint {operand.constraint!r} is not known")
    if kind == "f" and kind != operand.constraint:
        return f"float& p{number} = {operand.expression};"
    if operand.constraint[0] == "=":
        return f"{_TYPES[kind]} p{number};"
    return f"{_TYPES[kind]} p{number} = ({_TYPES[kind]}){operand.expression};"


def _instructions(program: str) -> list[str]:
    """Labels, declarations and instructions."""
    plain = re.sub(r"^\s*(\w+):", r"\1:;", program, flags=re.MULTILINE)
    lines = [line.strip() for line in plain.split(";")]
    lines = [line.removeprefix("{").strip() for line in lines]
    return [line for line in lines if line not in ("", "}")]


def _instruction(line: str) -> str:
    """One of them as C++."""
    if line.endswith(":"):
        return f"{line};"
    if line.startswith(".reg"):
        _, kind, names = line.split(None, 2)
        declared = ", ".join(f"r_{name.strip()}" for name in names.split(","))
        return f"{_REGISTERS[kind[1:]]} {declared};"
    guard = ""
    guarded = re.match(r"@(!?)(\w+)\s+", line)
    if guarded:
        guard, line = f"if ({guarded[1]}r_{guarded[2]}) ", line[guarded.end() :]
    opcode, _, rest = line.partition(" ")
    if opcode == "bra":
        return f"{guard}goto {rest};"
    name = re.sub(r"\W+", "_", opcode)
    return f"{guard}ptx::{name}({', '.join(_arguments(rest))});"


def _arguments(operands: str) -> list[str]:
    """Operands one by one, vectors and addresses taken apart."""
    words = [word.strip() for word in re.split(r"[,\[\]{}]", operands)]
    return [_argument(word) for word in words if word not in ("", "_")]


def _argument(word: str) -> str:
    if re.fullmatch(r"%\d+", word):
        return f"p{word[1:]}"
    if word.startswith("%$"):
        return f"ptx::special_{word[2:].replace('.', '_')}()"
    if re.fullmatch(r"-?\d+", word):
        return word
    if re.fullmatch(r"[A-Za-z]\w*", word):
        return f"r_{word}"
    raise TranslationError(f"operand {word!r} is not known")


def _operand(text: str) -> _Operand:
    found = _STRING.match(text.strip())
    if found is None:
        raise TranslationError(f"asm operand {text.strip()!r} is not known")
    return _Operand(found[1], text.strip()[found.end() :].strip())


def _split(text: str, at: str) -> list[str]:
    """Pieces between the `at` that lie in no string and no parentheses; an empty last one is left out."""
    pieces, depth, begin, place = [], 0, 0, 0
    while place < len(text):
        if text[place] == '"':
            place = _STRING.match(text, place).end()
            continue
        depth += (text[place] in "([") - (text[place] in ")]")
        if text[place] == at and depth == 0:
            pieces.append(text[begin:place])
            begin = place + 1
        place += 1
    pieces.append(text[begin:])
    return pieces if pieces[-1].strip() else pieces[:-1]


def _closing(text: str, opening: int) -> int:
    """Place of the parenthesis that closes the one at `opening`."""
    depth, place = 0, opening
    while place < len(text):
        if text[place] == '"':
            place = _STRING.match(text, place).end()
            continue
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place
        place += 1
    raise TranslationError("a parenthesis is not closed")
