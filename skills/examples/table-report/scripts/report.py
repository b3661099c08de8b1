#!/usr/bin/env python3
"""A table in, an Excel report and a chart out. See SKILL.md."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import NoReturn

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
from openpyxl.drawing.image import Image
from openpyxl.styles import Font
from openpyxl.utils import get_column_letter

EXCEL = (".xlsx", ".xlsm")
TEXT = (".csv", ".tsv", ".txt")
MOST_CATEGORIES = 20
WIDEST = 48


def fail(message: str) -> NoReturn:
    print(f"table-report: {message}", file=sys.stderr)
    sys.exit(2)


def main() -> None:
    args = parse_arguments()
    table = clean(read_table(args.input, args.sheet))
    if table.empty:
        fail(f"{args.input.name} holds no rows below its header.")
    value = column(table, args.value, "--value") if args.value else guess_value(table)
    by = column(table, args.by, "--by") if args.by else guess_category(table, value)
    if value is not None and not pd.api.types.is_numeric_dtype(table[value]):
        numeric = ", ".join(map(str, table.select_dtypes("number").columns)) or "none"
        fail(f"column {value!r} holds no numbers; columns that do: {numeric}.")
    totals = total_by(table, value, by)
    args.output.mkdir(parents=True, exist_ok=True)
    chart = args.output / f"{args.input.stem}-chart.png"
    report = args.output / f"{args.input.stem}-report.xlsx"
    draw(totals, title=args.title or describe(value, by), path=chart)
    write_workbook(table, totals, chart, report)
    result = {
        "rows": len(table),
        "columns": [str(name) for name in table.columns],
        "value": value,
        "by": by,
        "total": float(totals.sum()),
        "top": {str(k): float(v) for k, v in totals.nlargest(5).items()},
        "files": [str(report), str(chart)],
    }
    print(json.dumps(result, ensure_ascii=False))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("input", type=Path, help="a .csv, .tsv, .txt, .xlsx or .xlsm file")
    parser.add_argument("--sheet")
    parser.add_argument("--value")
    parser.add_argument("--by")
    parser.add_argument("--title")
    parser.add_argument("--output", type=Path, default=Path("/workspace/output"))
    return parser.parse_args()


def read_table(path: Path, sheet: str | None) -> pd.DataFrame:
    if not path.is_file():
        there = ", ".join(sorted(p.name for p in path.parent.glob("*"))) or "nothing"
        fail(f"there is no file {path}; {path.parent} holds: {there}.")
    if path.suffix.lower() in EXCEL:
        return read_excel(path, sheet)
    if path.suffix.lower() not in TEXT:
        fail(f"{path.name} is no table that it can read; give a {', '.join(TEXT + EXCEL)} file.")
    for encoding in ("utf-8-sig", "gb18030"):
        try:
            return pd.read_csv(path, sep=None, engine="python", encoding=encoding)
        except UnicodeDecodeError:
            continue
        except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
            fail(f"{path.name} is not a table: {error}.")
    fail(f"{path.name} is neither UTF-8 nor GB18030 text; save it as UTF-8.")


def read_excel(path: Path, sheet: str | None) -> pd.DataFrame:
    try:
        with pd.ExcelFile(path, engine="openpyxl") as book:
            if sheet is not None and sheet not in book.sheet_names:
                fail(f"there is no sheet {sheet!r}; there are: {', '.join(book.sheet_names)}.")
            return pd.read_excel(book, sheet_name=sheet if sheet is not None else 0)
    except (OSError, ValueError, KeyError) as error:
        fail(f"{path.name} is not a readable Excel file: {error}.")


def clean(table: pd.DataFrame) -> pd.DataFrame:
    """Drop empty rows and columns; make numbers and dates of the texts that mean them."""
    table = table.dropna(how="all").dropna(axis="columns", how="all")
    table.columns = [str(name).strip() for name in table.columns]
    for name in table.columns:
        cells = table[name]
        if pd.api.types.is_numeric_dtype(cells) or pd.api.types.is_datetime64_any_dtype(cells):
            continue
        texts = cells.dropna().astype(str).str.strip()
        numbers = pd.to_numeric(texts.str.replace(r"[,\s%$€£¥]", "", regex=True), errors="coerce")
        if len(texts) and numbers.notna().all():
            table[name] = numbers.reindex(cells.index)
            continue
        looks_dated = texts.str.match(r"^\d{4}[-/.年]\d{1,2}").all() if len(texts) else False
        if looks_dated:
            dates = pd.to_datetime(texts, errors="coerce", format="mixed")
            if dates.notna().all():
                table[name] = dates.reindex(cells.index)
    return table


def column(table: pd.DataFrame, wanted: str, option: str) -> str:
    for name in table.columns:
        if name.casefold() == wanted.strip().casefold():
            return str(name)
    fail(f"there is no column {wanted!r} for {option}; there are: {', '.join(table.columns)}.")


def guess_value(table: pd.DataFrame) -> str | None:
    numbers = table.select_dtypes("number")
    return None if numbers.columns.empty else str(numbers.std().fillna(0).idxmax())


def guess_category(table: pd.DataFrame, value: str | None) -> str | None:
    counts = {
        str(name): table[name].nunique()
        for name in table.columns
        if name != value and not pd.api.types.is_numeric_dtype(table[name])
    }
    usable = {name: count for name, count in counts.items() if count >= 2}
    return min(usable, key=lambda name: usable[name]) if usable else None


def total_by(table: pd.DataFrame, value: str | None, by: str | None) -> pd.Series:
    """Sums of `value` (or the number of rows) by category, largest first; dates in their order."""
    if by is None:
        return table[value].rename_axis("row") if value else pd.Series({"rows": len(table)})
    groups = table.groupby(by, dropna=False)
    totals = groups[value].sum() if value else groups.size()
    if pd.api.types.is_datetime64_any_dtype(table[by]):
        return totals.sort_index()
    return totals.sort_values(ascending=False)


def describe(value: str | None, by: str | None) -> str:
    what = value or "Rows"
    return f"{what} by {by}" if by else what


def draw(totals: pd.Series, *, title: str, path: Path) -> None:
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    plt.rcParams["font.family"] = ["DejaVu Sans", "WenQuanYi Micro Hei"]
    figure, axes = plt.subplots(figsize=(10, 5.6), layout="constrained")
    if pd.api.types.is_datetime64_any_dtype(totals.index) or len(totals) > 4 * MOST_CATEGORIES:
        axes.plot(totals.index, totals.to_numpy(), linewidth=2)
        axes.margins(x=0.01)
    else:
        shown = totals.head(MOST_CATEGORIES)
        bars = axes.barh([str(name) for name in shown.index][::-1], shown.to_numpy()[::-1])
        axes.bar_label(bars, fmt="{:,.6g}", padding=3)
        axes.margins(x=0.12)
        if len(totals) > len(shown):
            title += f" (the {len(shown)} largest of {len(totals)})"
    axes.set_title(title)
    axes.set_axisbelow(True)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def write_workbook(table: pd.DataFrame, totals: pd.Series, chart: Path, path: Path) -> None:
    numbers = table.select_dtypes("number")
    summary = numbers.describe().T.rename_axis("column") if len(numbers.columns) else None
    with pd.ExcelWriter(path, engine="openpyxl") as writer:
        if summary is not None:
            summary["sum"] = numbers.sum()
            summary.reset_index().to_excel(writer, sheet_name="Summary", index=False)
        totals.rename("total").reset_index().to_excel(writer, sheet_name="Totals", index=False)
        table.to_excel(writer, sheet_name="Data", index=False)
        for sheet in writer.sheets.values():
            sheet.freeze_panes = "A2"
            for cell in sheet[1]:
                cell.font = Font(bold=True)
            for number, cells in enumerate(sheet.iter_cols(max_row=200, values_only=True), 1):
                width = max(len(str(text)) for text in cells if text is not None) + 2
                sheet.column_dimensions[get_column_letter(number)].width = min(width, WIDEST)
        picture = Image(str(chart))
        picture.width, picture.height = picture.width // 2, picture.height // 2
        writer.sheets["Totals"].add_image(picture, "E2")


if __name__ == "__main__":
    main()
