"""`rlcli doctor`: checks the installation and the machine."""

from collections.abc import Mapping
from typing import Any

import typer

import rlcli
from rlcli import errors
from rlcli.cli import options, output


def command(json: bool = options.JSON) -> None:
    """Check the installation: versions, devices, extras, folders.

    Also checks plug-ins and the terminal. Exits with 1 if something that every run
    requires is broken.
    """
    report = rlcli.doctor()
    report["terminal"]["stdout"] = output.data_stream().isatty()
    if json:
        output.print_json(report)
    else:
        _print_report(report)
    raise typer.Exit(errors.OK if report["ok"] else errors.USER_ERROR)


def _print_report(report: Mapping[str, Any]) -> None:
    """Prints a block of lines for each topic, and the problems last."""
    output.print_data(
        f"rlcli {report['rlcli']}, Python {report['python']}, {report['platform']}"
    )
    cores, terminal = report["cores"], report["terminal"]
    panel = "shows the live panel" if terminal["panel"] else "gets plain lines"
    blocks = {
        "packages": [
            (name, version or "missing") for name, version in report["packages"].items()
        ],
        "older or newer than tested": [
            (
                item["name"],
                item["installed"],
                f"{item['is']} than {', '.join(item['tested'])}",
            )
            for item in report["untested"]
        ],
        "devices": [
            (f"{item['count']} {item['platform']}", item["kind"])
            for item in report["devices"]
        ],
        "cores": [("usable", f"{cores['usable']} of {cores['machine']}")],
        "extras": [
            (
                item["name"],
                "installed" if item["installed"] else "missing",
                f"{item['purpose']}: {item['install']}",
            )
            for item in report["extras"]
        ],
        "plug-ins": [
            (
                f"{item['kind']} {item['name']}",
                f"broken: {item['error']}" if item["error"] else item["source"],
            )
            for item in report["plug_ins"]
        ],
        "terminal": [
            ("TERM", terminal["term"] or "not set"),
            ("size", f"{terminal['columns']} x {terminal['lines']}"),
            ("stderr", panel),
        ],
        "folders": [
            (item["purpose"], item["error"] or "writable", item["path"])
            for item in report["folders"]
        ],
    }
    for name, rows in blocks.items():
        output.print_data(f"\n{name}")
        output.print_rows(rows or [("none",)])
    output.print_data("\nproblems" if report["problems"] else "\nno problems")
    for problem in report["problems"]:
        kind = "error" if problem["required"] else "warning"
        output.print_data(
            f"  {kind}: {problem['message']}\n    hint: {problem['hint']}"
        )
