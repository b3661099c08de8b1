#!/usr/bin/env python3
"""PDF files in, their text and metadata out. See SKILL.md."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from pypdf import PasswordType, PdfReader
from pypdf.errors import PyPdfError


class Failed(Exception):
    """One sentence about one file."""


def main() -> None:
    args = parse_arguments()
    if shutil.which("pdftotext") is None:
        print("pdf-text: pdftotext is missing; install poppler-utils.", file=sys.stderr)
        sys.exit(2)
    args.output.mkdir(parents=True, exist_ok=True)
    results, failed = [], False
    for path in args.inputs:
        try:
            results.append(extract(path, args))
        except Failed as error:
            failed = True
            print(f"pdf-text: {error}", file=sys.stderr)
    print(json.dumps(results, ensure_ascii=False))
    sys.exit(2 if failed else 0)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inputs", type=Path, nargs="+", metavar="PDF")
    parser.add_argument("--pages", type=page_range, default=(1, None), metavar="FIRST-LAST")
    parser.add_argument("--layout", action="store_true")
    parser.add_argument("--password", default="")
    parser.add_argument("--output", type=Path, default=Path("/workspace/output"))
    return parser.parse_args()


def page_range(text: str) -> tuple[int, int | None]:
    found = re.fullmatch(r"(\d+)(?:(-)(\d*))?", text.strip())
    if not found or int(found[1]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no page range; write 3, 3-7 or 3-")
    first = int(found[1])
    last = int(found[3]) if found[3] else None if found[2] else first
    if last is not None and last < first:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins")
    return first, last


def extract(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    if not path.is_file():
        there = ", ".join(sorted(p.name for p in path.parent.glob("*.pdf"))) or "no PDF"
        raise Failed(f"there is no file {path}; {path.parent} holds: {there}.")
    reader = open_pdf(path, args.password)
    count = len(reader.pages)
    first, last = args.pages[0], min(args.pages[1] or count, count)
    if first > count:
        raise Failed(f"{path.name} has {count} pages, so there is no page {first}.")
    text = pdftotext(path, first, last, args)
    about = {"file": path.name, "first_page": first, "last_page": last, **describe(reader)}
    about["scanned"] = not text.strip()
    text_path, about_path = args.output / f"{path.stem}.txt", args.output / f"{path.stem}.json"
    text_path.write_text(text)
    about_path.write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n")
    return {
        "file": path.name,
        "pages": count,
        "characters": len(text),
        "title": about["title"],
        "scanned": about["scanned"],
        "files": [str(text_path), str(about_path)],
    }


def open_pdf(path: Path, password: str) -> PdfReader:
    try:
        reader = PdfReader(path)
        if reader.is_encrypted and reader.decrypt(password) == PasswordType.NOT_DECRYPTED:
            wanted = "is wrong" if password else "is needed: give it with --password"
            raise Failed(f"{path.name} is encrypted, and its password {wanted}.")
        len(reader.pages)
    except (PyPdfError, OSError, ValueError, KeyError, TypeError) as error:
        raise Failed(f"{path.name} is not a readable PDF: {error}.") from error
    return reader


def pdftotext(path: Path, first: int, last: int, args: argparse.Namespace) -> str:
    command = ["pdftotext", "-enc", "UTF-8", "-f", str(first), "-l", str(last)]
    if args.layout:
        command.append("-layout")
    if args.password:
        command += ["-upw", args.password]
    done = subprocess.run([*command, "--", str(path), "-"], capture_output=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise Failed(f"the text of {path.name} cannot be read: {reason[-1]}.")
    return done.stdout.decode(errors="replace")


def describe(reader: PdfReader) -> dict[str, Any]:
    info = reader.metadata
    return {
        "title": text_of(info and info.title),
        "author": text_of(info and info.author),
        "subject": text_of(info and info.subject),
        "producer": text_of(info and info.producer),
        "created": text_of(info and info.get("/CreationDate")),
        "modified": text_of(info and info.get("/ModDate")),
        "pages": len(reader.pages),
        "page_sizes": sorted(
            {
                (round(float(p.mediabox.width)), round(float(p.mediabox.height)))
                for p in reader.pages
            }
        ),
        "encrypted": reader.is_encrypted,
        "outline": list(outline(reader, reader.outline)),
        "links": list(links(reader)),
    }


def text_of(value: Any) -> str | None:
    return None if value is None else str(value)


def outline(reader: PdfReader, entries: list[Any], level: int = 1) -> Any:
    for entry in entries:
        if isinstance(entry, list):
            yield from outline(reader, entry, level + 1)
        else:
            number = reader.get_destination_page_number(entry)
            page = None if number is None or number < 0 else number + 1
            yield {"title": str(entry.title), "level": level, "page": page}


def links(reader: PdfReader) -> Any:
    for number, page in enumerate(reader.pages, 1):
        for reference in page.get("/Annots") or []:
            action = reference.get_object().get("/A")
            if action is not None and "/URI" in action.get_object():
                yield {"page": number, "url": str(action.get_object()["/URI"])}


if __name__ == "__main__":
    main()
