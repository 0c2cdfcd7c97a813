"""The books that a ledger exports, read by other people's programs.

hledger (Debian) and beancount (PyPI) check that every entry balances and add up; openpyxl (PyPI) opens the workbook. Their sums
are compared with SQL over the ledger's own flows.
"""

import csv
import io
import json
import sqlite3
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

from openpyxl import load_workbook


def run(program, folder, checks):
    """`folder` has the configuration and the data of a ledger."""
    venv = Path(sys.executable).parent

    def export(form, *more):
        command = [program, "audit", "export", "--format", form, "--config", str(folder / "paidonce.toml"), *more]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        checks.equal(f"books: the export as {form}", (done.returncode, "Internal" in done.stderr), (0, False))
        return done.stdout

    def sum_of(condition):
        with sqlite3.connect(f"file:{folder / 'data' / 'ledger.db'}?mode=ro", uri=True) as database:
            query = f"SELECT coalesce(sum(amount_minor), 0), count(*) FROM t_order_flow WHERE {condition}"
            minor, count = database.execute(query).fetchone()
        return Decimal(minor) / 100, count

    received = sum_of("direction = 'IN'")[0] - sum_of("direction = 'OUT'")[0]
    sold, entries = sum_of("trade_type = 'PAY'")[0], sum_of("1 = 1")[1]

    journal = folder / "books.journal"
    journal.write_text(export("hledger"))
    checked = subprocess.run(["hledger", "-f", str(journal), "check"], capture_output=True, text=True)
    checks.equal("books: hledger check", (checked.returncode, checked.stderr), (0, ""))
    shown = subprocess.run(["hledger", "-f", str(journal), "bal", "-O", "csv"], capture_output=True, text=True)
    balances = {row[0]: row[1] for row in csv.reader(io.StringIO(shown.stdout))}
    amount = lambda text: Decimal(text.split()[0].replace(",", ""))
    assets = sum(amount(text) for name, text in balances.items() if name.startswith("Assets:"))
    checks.equal("books: hledger, what the platforms hold", assets, received)
    checks.equal("books: hledger, sales", -amount(balances["Income:Sales"]), sold)

    ledger = folder / "books.beancount"
    ledger.write_text(export("beancount"))
    checked = subprocess.run([str(venv / "bean-check"), str(ledger)], capture_output=True, text=True)
    checks.equal("books: bean-check", (checked.returncode, checked.stdout + checked.stderr), (0, ""))

    lines = [json.loads(line) for line in export("jsonl").splitlines()]
    checks.equal("books: JSON lines", len(lines), entries)
    rows = list(csv.DictReader(io.StringIO(export("csv"))))
    checks.equal("books: CSV rows", [row["event_id"] for row in rows], [line["event_id"] for line in lines])

    book = folder / "books.xlsx"
    export("xlsx", "--out", str(book))
    sheet = load_workbook(book, read_only=True).worksheets[0]
    cells = [[cell.value for cell in row] for row in sheet.iter_rows()]
    checks.equal("books: rows of the workbook", len(cells), entries + 1)
    amounts = sum(row[12] for row in cells[1:])
    checks.equal("books: sum of the workbook", amounts, sum(line["amount_minor"] for line in lines))
