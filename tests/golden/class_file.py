"""The exception messages in the byte code of Java classes, read without a JVM.

The reader goes through each method once, in the order of its instructions. It follows what decides a
message: constant strings, concatenations by ``StringBuilder`` or by ``invokedynamic``, local variables,
``new`` and the call of a constructor. Whatever else a message contains is written as ``{}``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_NEW, _INVOKEDYNAMIC, _ARETURN = 187, 186, 176
_CALLS = (182, 183, 184, 185)
_ALOAD, _ASTORE = (25, range(42, 46)), (58, range(75, 79))
_TABLESWITCH, _LOOKUPSWITCH, _WIDE, _IINC = 170, 171, 196, 132
# The bytes of operands, by instruction; all others have none.
_OPERANDS = {
    **dict.fromkeys((16, 18, 188, *range(21, 26), *range(54, 59), 169), 1),
    **dict.fromkeys((17, 19, 20, 132, *range(153, 169), *range(178, 185)), 2),
    **dict.fromkeys((187, 189, 192, 193, 198, 199), 2),
    **dict.fromkeys((185, 186, 200, 201), 4),
    197: 3,
}
_CONSTANT_SIZES = {
    **dict.fromkeys((7, 8, 16, 19, 20), 2),
    15: 3,
    **dict.fromkeys((3, 4, 9, 10, 11, 12, 17, 18), 4),
    **dict.fromkeys((5, 6), 8),
}
OF_A_CHECK = "IllegalArgumentException"
"""What Hudi's checks throw whose message a lambda makes."""
_THROWN_BY = {
    "checkArgument": "IllegalArgumentException",
    "checkState": "IllegalStateException",
    "checkNotNull": "NullPointerException",
    "requireNonNull": "NullPointerException",
}
_TAKES_TEXT = re.compile(r"Ljava/lang/String;(?:\[Ljava/lang/Object;)?\)")
_BUILDER = "java/lang/StringBuilder"


class Thrown(NamedTuple):
    """An exception that a class makes, with the text of its message.

    :param exception: simple name of the exception's class.
    :param message: its constant parts, and ``{}`` for each other part.
    """

    exception: str
    message: str


class _Call(NamedTuple):
    owner: str
    name: str
    descriptor: str


@dataclass(slots=True)
class _Method:
    """What the instructions of one method have put together so far."""

    texts: list[str] = field(default_factory=list)
    locals: dict[int, str] = field(default_factory=dict)
    making: list[tuple[str, int]] = field(default_factory=list)
    builders: list[int] = field(default_factory=list)


class ClassFile:
    """One class file.

    :param content: its bytes.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._pool: dict[int, tuple[int, Any]] = {}
        self._recipes: list[tuple[int, ...]] = []
        self._after_pool = self._read_pool()

    def thrown(self) -> set[Thrown]:
        """Return the exceptions that its methods make."""
        found: set[Thrown] = set()
        for name, descriptor, code in self._methods():
            found |= set(self._read(name, descriptor, code))
        return found

    def _read_pool(self) -> int:
        count, place, index = struct.unpack_from(">H", self._content, 8)[0], 10, 1
        while index < count:
            tag = self._content[place]
            if tag == 1:
                length = struct.unpack_from(">H", self._content, place + 1)[0]
                text = self._content[place + 3 : place + 3 + length]
                self._pool[index] = tag, text.decode("utf-8", errors="replace")
                place += 3 + length
            else:
                size = _CONSTANT_SIZES[tag]
                raw = self._content[place + 1 : place + 1 + size]
                self._pool[index] = tag, struct.unpack(">HH", raw) if size == 4 else raw
                place += 1 + size
            index += 2 if tag in (5, 6) else 1
        return place

    def _text(self, index: int) -> str:
        tag, value = self._pool[index]
        return str(value) if tag == 1 else self._text(struct.unpack(">H", value)[0])

    def _string(self, index: int) -> str | None:
        return self._text(index) if self._pool[index][0] == 8 else None

    def _call(self, index: int) -> _Call:
        owner, name_and_type = self._pool[index][1]
        name, descriptor = self._pool[name_and_type][1]
        return _Call(self._text(owner), self._text(name), self._text(descriptor))

    def _methods(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield name, descriptor and instructions of each method; read the recipes of concatenations."""
        place = self._after_pool + 6
        place += 2 + 2 * struct.unpack_from(">H", self._content, place)[0]
        methods: list[tuple[str, str, bytes]] = []
        for is_method in (False, True):
            count = struct.unpack_from(">H", self._content, place)[0]
            place += 2
            for _ in range(count):
                _, name, descriptor, attributes = struct.unpack_from(">HHHH", self._content, place)
                place += 8
                for _ in range(attributes):
                    kind, length = struct.unpack_from(">HI", self._content, place)
                    if is_method and self._text(kind) == "Code":
                        size = struct.unpack_from(">I", self._content, place + 10)[0]
                        code = self._content[place + 14 : place + 14 + size]
                        methods.append((self._text(name), self._text(descriptor), code))
                    place += 6 + length
        self._read_recipes(place)
        yield from methods

    def _read_recipes(self, place: int) -> None:
        count = struct.unpack_from(">H", self._content, place)[0]
        place += 2
        for _ in range(count):
            kind, length = struct.unpack_from(">HI", self._content, place)
            if self._text(kind) == "BootstrapMethods":
                here = place + 8
                for _ in range(struct.unpack_from(">H", self._content, place + 6)[0]):
                    size = struct.unpack_from(">H", self._content, here + 2)[0]
                    self._recipes.append(struct.unpack_from(f">{size}H", self._content, here + 4))
                    here += 4 + 2 * size
            place += 6 + length

    def _read(self, name: str, descriptor: str, code: bytes) -> Iterator[Thrown]:
        method = _Method()
        for place, opcode in _instructions(code):
            if opcode == 18 and (text := self._string(code[place + 1])) is not None:
                method.texts.append(text)
            elif opcode == 19:
                if (text := self._string(_index(code, place))) is not None:
                    method.texts.append(text)
            elif opcode == _NEW:
                made = self._text(_index(code, place))
                if made == _BUILDER:
                    method.builders.append(len(method.texts))
                elif re.search(r"(?:Exception|Error)$", made):
                    method.making.append((made, len(method.texts)))
            elif opcode == _INVOKEDYNAMIC:
                self._concatenate(method, _index(code, place))
            elif opcode in _CALLS:
                yield from self._called(method, self._call(_index(code, place)))
            elif (variable := _variable(_ASTORE, code, place)) is not None:
                if method.texts and not method.making:
                    method.locals[variable] = method.texts.pop()
                else:
                    method.locals.pop(variable, None)
            elif (variable := _variable(_ALOAD, code, place)) is not None:
                if variable in method.locals:
                    method.texts.append(method.locals[variable])
            elif opcode == _ARETURN:
                if name.startswith("lambda$") and descriptor.endswith(")Ljava/lang/String;"):
                    yield from (Thrown(OF_A_CHECK, text) for text in method.texts[-1:])
                method.texts.clear()
            elif opcode in (177, 191):  # return, athrow
                method.texts.clear()

    def _concatenate(self, method: _Method, index: int) -> None:
        bootstrap, name_and_type = self._pool[index][1]
        name = self._pool[name_and_type][1][0]
        if self._text(name) != "makeConcatWithConstants":
            return
        arguments = self._recipes[bootstrap]
        recipe = self._string(arguments[0]) or ""
        for constant in arguments[1:]:
            recipe = recipe.replace("\2", self._string(constant) or "{}", 1)
        method.texts.append(recipe.replace("\1", "{}"))

    def _called(self, method: _Method, call: _Call) -> Iterator[Thrown]:
        if call.owner == _BUILDER:
            if method.builders:
                self._built(method, call)
            return
        base = max([0, *method.builders, *(since for _, since in method.making)])
        if call.name == "<init>" and method.making and call.owner == method.making[-1][0]:
            _, since = method.making.pop()
            texts = method.texts[since:]
            del method.texts[since:]
            if texts:
                yield Thrown(call.owner.rpartition("/")[2], max(texts, key=len))
        elif call.owner == "java/lang/String" and call.name == "format" and method.texts[base:]:
            method.texts[base:] = [max(method.texts[base:], key=len)]
        elif call.name in _THROWN_BY and _TAKES_TEXT.search(call.descriptor):
            texts = method.texts[-2:] if "[" in call.descriptor else method.texts[-1:]
            if texts:
                yield Thrown(_THROWN_BY[call.name], max(texts, key=len))
                method.texts.clear()
        elif call.descriptor.endswith(")V"):  # such as a logger's: it has taken its texts
            del method.texts[base:]

    def _built(self, method: _Method, call: _Call) -> None:
        """Take a call of a ``StringBuilder``: its texts become one when it is read."""
        since = method.builders[-1]
        if call.name == "append":
            literal = len(method.texts) > since and not method.texts[-1].startswith("\0")
            if literal:
                method.texts[-1] = f"\0{method.texts[-1]}"
            else:
                method.texts.append("\0{}")
        elif call.name == "toString":
            method.builders.pop()
            whole = "".join(text.removeprefix("\0") for text in method.texts[since:])
            del method.texts[since:]
            method.texts.append(whole)


def _index(code: bytes, place: int) -> int:
    return int(struct.unpack_from(">H", code, place + 1)[0])


def _variable(kinds: tuple[int, range], code: bytes, place: int) -> int | None:
    general, short = kinds
    if code[place] == general:
        return code[place + 1]
    return short.index(code[place]) if code[place] in short else None


def _instructions(code: bytes) -> Iterator[tuple[int, int]]:
    place = 0
    while place < len(code):
        opcode = code[place]
        yield place, opcode
        if opcode in (_TABLESWITCH, _LOOKUPSWITCH):
            here = place + 4 - place % 4
            if opcode == _TABLESWITCH:
                low, high = struct.unpack_from(">ii", code, here + 4)
                place = here + 12 + 4 * (high - low + 1)
            else:
                place = here + 8 + 8 * struct.unpack_from(">i", code, here + 4)[0]
        elif opcode == _WIDE:
            place += 6 if code[place + 1] == _IINC else 4
        else:
            place += 1 + _OPERANDS.get(opcode, 0)
