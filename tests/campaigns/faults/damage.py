"""Ways to damage a file: its bytes, its text, its fields, or what is at its place."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Rng = np.random.Generator

# texts in place of a number or a word
WORDS = (
    "nan", "NaN", "-inf", "inf", "1e400", "-1e308", "1e-320", "-1", "0", "1.5", "-0",
    "9" * 30, "9" * 5000, "0x10", "1_000", "", " ", "null", "true", "[]", "{}", "''",
    '"', "'", "\0", "\r", "\n", "\ufeff", "é", "\u2028", "\u0663", "\ud800", "a" * 9000,
    "..", "../outside/kept.txt", "/dev/zero", "/", "%s%n", "{rank}", "{0}", "::", "::X",
    ",", ";", "#", "x0", "label", "-", "--", "=", "\\", "\\u0000", "1,2", "1;2",
)  # fmt: skip
# values in place of a field of JSON or TOML
VALUES = (
    None, True, False, 0, -1, 1, 2, 1.5, -2.5, 1e308, 1e-320, float("inf"),
    float("nan"), 10**30, 2**63, 2**31, "", "x", "../outside/kept.txt", "\0", "\ud800",
    "é" * 2000, [], {}, [[]], [{}], [1, "x"], [1.0, 2.0], {"x": 1}, [None], ["x", "x"],
)  # fmt: skip
ENCODINGS = ("utf-16", "utf-32", "latin-1", "utf-8-sig", "cp037", "utf-7", "ascii")


def pick(rng: Rng, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def some_bytes(rng: Rng, most: int = 64) -> bytes:
    return rng.integers(0, 256, int(rng.integers(1, most)), dtype=np.uint8).tobytes()


def damage_bytes(rng: Rng, data: bytes) -> bytes:
    """Return a file's bytes, truncated, flipped, moved or replaced."""
    size = max(len(data), 1)
    start, stop = sorted(int(k) for k in rng.integers(0, size + 1, 2))
    short = slice(start, min(stop, start + 16))
    match int(rng.integers(10)):
        case 0:
            return data[:start]
        case 1:
            return data[start:]
        case 2 | 3:
            flipped = bytearray(data or b"\0")
            for place in rng.integers(0, len(flipped), int(rng.integers(1, 9))):
                flipped[place] ^= 1 << int(rng.integers(8))
            return bytes(flipped)
        case 4:
            return data[:start] + some_bytes(rng) + data[start:]
        case 5:
            return data[: short.start] + some_bytes(rng, 16) + data[short.stop :]
        case 6:
            return data[:start] + data[stop:]
        case 7:
            return data[:start] + data[start:stop] * 3 + data[stop:]
        case 8:
            fill = pick(rng, (b"\0", b"\xff", b"\x7f", b" ", b"\n"))
            filled = fill * (short.stop - short.start)
            return data[: short.start] + filled + data[short.stop :]
        case _:
            return pick(rng, (b"", some_bytes(rng, 4000), b"\0" * 999, data * 5))


def damage_text(rng: Rng, text: str) -> str:
    """Return a text with changed words or lines."""
    lines = text.split("\n")
    at, other = (int(k) for k in rng.integers(0, len(lines), 2))
    match int(rng.integers(8)):
        case 0 | 1 | 2:
            words = list(re.finditer(r"[-\w.+]+", text))
            if words:
                word = pick(rng, words)
                return text[: word.start()] + pick(rng, WORDS) + text[word.end() :]
        case 3:
            words = re.split(r"([-\w.+]+)", text)
            a, b = (int(k) for k in rng.integers(0, len(words), 2))
            words[a], words[b] = words[b], words[a]
            return "".join(words)
        case 4:
            lines[at], lines[other] = lines[other], lines[at]
        case 5:
            del lines[at]
        case 6:
            lines.insert(at, pick(rng, (lines[other], *WORDS)))
        case _:
            mark = pick(rng, ",;= .\n\"'[]{}<>#0123456789")
            return text.replace(mark, pick(rng, WORDS), int(rng.integers(1, 9)))
    return "\n".join(lines)


def damage_file(rng: Rng, data: bytes, text: bool = False) -> bytes:
    """Return a damaged file, of text or not, by one or two changes."""
    for _ in range(int(rng.integers(1, 3))):
        if text and rng.random() < 0.7:
            words = data.decode("utf-8", "surrogateescape")
            changed = damage_text(rng, words)
            if rng.random() < 0.1:
                return changed.encode(pick(rng, ENCODINGS), "replace")
            data = changed.encode("utf-8", "surrogatepass")[: 2**20]
        else:
            data = damage_bytes(rng, data)
    return data


def damage_field(rng: Rng, content: Any) -> Any:
    """Return nested dicts and lists with a changed, lost, doubled or renamed field."""
    content = json.loads(json.dumps(content))
    places: list[tuple[Any, Any]] = []

    def walk(inner: Any) -> None:
        keys = inner if isinstance(inner, dict) else range(len(inner))
        for key in keys:
            places.append((inner, key))
            if isinstance(inner[key], dict | list):
                walk(inner[key])

    walk(content)
    if not places:
        return pick(rng, VALUES)
    for _ in range(int(rng.integers(1, 4))):
        inner, key = pick(rng, places)
        if isinstance(inner, list) and key >= len(inner):
            continue
        if isinstance(inner, dict) and key not in inner:
            continue
        match int(rng.integers(7)):
            case 0:
                del inner[key]
            case 1 if isinstance(inner, dict):
                inner[str(pick(rng, WORDS))] = inner.pop(key)
            case 1:
                inner.append(inner[key])
            case 2:
                there, name = pick(rng, places)
                if name in there if isinstance(there, dict) else name < len(there):
                    inner[key] = json.loads(json.dumps(there[name]))
            case 3 if rng.random() < 0.3:
                inner[key] = nested(int(pick(rng, (3, 60, 500))))
            case _:
                inner[key] = pick(rng, VALUES)
    return content


def nested(depth: int) -> list[Any]:
    """Return lists in lists."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def misplace(rng: Rng, path: Path, outside: Path) -> None:
    """Put something else at the place of a file."""
    path.unlink(missing_ok=True)
    targets = (
        "/dev/zero",
        "/dev/full",
        path.name,
        "nowhere",
        outside / "kept.txt",
        outside,
    )
    match int(rng.integers(10)):
        case 0:
            path.mkdir()
        case 1:
            os.mkfifo(path)
        case 2:
            path.write_bytes(b"")
            path.chmod(0)
        case 3:
            with socket.socket(socket.AF_UNIX) as end, contextlib.chdir(path.parent):
                end.bind(path.name)  # the path of a socket must be short
        case other:
            path.symlink_to(targets[other - 4])


# headers and archives


def npy_header(shape: str, descr: str = "'<f8'", order: str = "False") -> bytes:
    """Return the header of a .npy file that claims this shape and type."""
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def false_npy(rng: Rng) -> bytes:
    """Return a .npy file whose header is false or unusual."""
    shapes = (
        "(10**12, 4)", "(1000000000000, 4)", "(-1, 4)", "(24, -4)", "(24, 4, 1)", "()",
        "(0, 4)", "(24, 0)", "(9223372036854775807, 9223372036854775807)", "(24,)",
        "(4294967296, 4294967296)", f"({'9' * 4000},)", "(24.0, 4)", "('24', 4)",
        "(True, 4)", "24", "(24, 4)", f"({'1,' * 70})", "(100000000, 1)",
    )  # fmt: skip
    kinds = (
        "'<f8'", "'<f8'", "'<f8'", "'|O'", "'<U9'", "'>i2'", "'<c16'", "'|V8'", "'<M8'",
        "[('a', '<f8'), ('b', '<i4')]", "'|b1'", "'<f2'", "'<g'", "'nonsense'", "1",
        "[('a', '|O')]", "'<U400000000'", "'<M8[ns]'", "'<f8' if 1 else 2", "None",
        "__import__('os').mkdir('../outside/made')", "'|S0'", "'<U0'",
    )  # fmt: skip
    header = npy_header(
        pick(rng, shapes), pick(rng, kinds), pick(rng, ("False", "True", "2", "None"))
    )
    if rng.random() < 0.2:
        size = pick(rng, (b"\0\0", b"\xff\xff", b"\x01\0"))
        header = header[:8] + size + header[10:]
    if rng.random() < 0.1:
        header = b"\x93NUMPY" + bytes(pick(rng, ((2, 0), (3, 0), (9, 9)))) + header[8:]
    body = rng.standard_normal((24, 4)).tobytes()
    return header + body[: int(rng.integers(0, len(body)))]


def archive(members: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return buffer.getvalue()


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def damage_archive(rng: Rng, data: bytes) -> bytes:
    """Return an archive of arrays with false members, sizes or names."""
    members = members_of(data)
    name = pick(rng, [*members])
    match int(rng.integers(7)):
        case 0:
            members[name] = false_npy(rng)
        case 1:
            members[name] = damage_bytes(rng, members[name])
        case 2:
            del members[name]
        case 3:
            tricks = ("../outside/made.npy", "/made.npy", ".npy", "a/b.npy", "x\0.npy")
            members[pick(rng, tricks)] = members.pop(name)
        case 4:  # a few kilobytes that become 64 MiB
            zeros = npy_header("(2097152, 4)") + bytes(2**26)
            return archive(members | {name: zeros}, zipfile.ZIP_DEFLATED)
        case 5:  # sizes and flags in the directory of the archive
            data = bytearray(archive(members, zipfile.ZIP_DEFLATED))
            for entry in (b"PK\x01\x02", b"PK\x03\x04"):
                place = data.find(entry) + int(rng.integers(4, 30))
                data[place : place + 4] = pick(
                    rng, (b"\xff" * 4, b"\1\0\0\0", b"\0" * 4)
                )
            return bytes(data)
        case _:
            other = pick(rng, [*members])
            members[name], members[other] = members[other], members[name]
    return archive(members)


def as_arrays(change: Callable[[dict[str, Any]], None], data: bytes) -> bytes:
    """Return an archive after a change of its arrays."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        arrays = dict(file)
    change(arrays)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()
