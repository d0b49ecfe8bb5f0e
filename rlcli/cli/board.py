"""`rlcli board`: serves a web page about runs and studies."""

import os

import rlcli
from rlcli.cli import options, output


def command(
    runs: list[str] = options.argument(
        "RUNS", "Folders with runs and studies, or run folders.", default=["runs"]
    ),
    port: int = options.option(
        "--port N",
        "The port to listen on. Default: a free one.",
        default=0,
        min=0,
        max=65_535,
    ),
    open_: bool = options.flag("--open", "Open the page in the browser."),
) -> None:
    """Serve a live web page about runs and studies.

    Prints the link of the page, and serves it until Ctrl-C. Only this machine can reach
    it, and only with the link. Only reads the files: runs do not notice.
    """

    def show_link(link: str) -> None:
        output.print_data(link)
        output.print_message("Ctrl-C ends the board, and no run")
        if open_:
            import webbrowser  # here, to keep `--help` fast

            webbrowser.open(link)
        os.nice(19)  # runs that train on all cores keep them; not for the browser

    rlcli.board(runs, port=port, show_link=show_link)
