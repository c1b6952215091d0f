"""The outcomes of a campaign, in a CSV file and as a table.

python tests/campaigns/faults/table.py [results.csv]
"""

import csv
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

SURVIVED, CLEAR, UNCLEAR = "survived", "clear error", "unclear error"
HANG, WRONG, LOST = "hang", "wrong result", "data lost"
FAILURES = (UNCLEAR, HANG, WRONG, LOST)
MISSED = "missed"  # the fault found nobody; such a case counts for nothing
SKIPPED = "skipped"  # it cannot be tried here

COLUMNS = (
    "kind", "seed", "mpi", "ranks", "outcome", "struck", "starts", "seconds", "run",
    "story",
)  # fmt: skip
COUNTED = {
    SURVIVED: "survived", CLEAR: "clear errors", UNCLEAR: "unclear errors",
    HANG: "hangs", WRONG: "wrong results", LOST: "data lost",
}  # fmt: skip

Row = Mapping[str, str]


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a results file; none if there is no such file."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, row: Row) -> None:
    fresh = not path.exists()
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def table(rows: Iterable[Row]) -> str:
    """Return the table of a campaign in Markdown, one line per MPI and kind."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        place = row["mpi"], row["kind"]
        counts.setdefault(place, Counter())[row["outcome"]] += 1
    total: Counter[str] = sum(counts.values(), Counter())
    lines = [("MPI", "fault", "tried", *COUNTED.values())]
    lines.append(("---", "---", *["---:"] * (1 + len(COUNTED))))
    for (mpi, kind), found in [*counts.items(), (("", "all"), total)]:
        numbers = [found[outcome] for outcome in COUNTED]
        cells = map(str, [sum(numbers), *numbers])
        lines.append((mpi, kind.replace("_", " "), *cells))
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    idle = [f"{total[word]} {word}" for word in (MISSED, SKIPPED) if total[word]]
    return f"{text}\n\nNot counted: {', '.join(idle)}." if idle else text


if __name__ == "__main__":
    beside = Path(__file__).with_name("results.csv")
    print(table(read(Path(sys.argv[1]) if sys.argv[1:] else beside)))
