"""Command line interface: one thin module per command of `rlcli.COMMANDS`.

Each command calls the function of the same name in `rlcli`.

Belongs here: arguments, options, printing, exit codes.
May import: rlcli, and modules without JAX; anything else inside a command.

Commands import JAX only when they run, after `thread_layout` has set its threads.
"""

import importlib
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

import rlcli
from rlcli import COMMAND_GROUPS, COMMANDS, command_name, errors
from rlcli.cli import completion, options, output
from rlcli.errors import RlcliError, quote
from rlcli.xla import switches

# By library: its modules that read variables, and the names of these.
_READERS = {
    "JAX": (r"jax\._src\.(?:xla_bridge|config)", r"JAX_\w+"),
    "matplotlib": (r"matplotlib(?:\.rcsetup)?", r"MPL\w+"),
}
# Variables that JAX reads when it computes, by the words of the error.
_LATE = {
    "JAX_DEFAULT_DEVICE": "Unknown backend: ",
    "JAX_NO_TRACING": "'no_tracing' is set",
}
_LONGEST = 200  # characters of the library's message


class _CommandLine(TyperGroup):
    """The command `rlcli`, whose help has the other commands in groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the first sentence of each command, which Typer would cut."""
        width = max(map(len, self.commands))  # the same column in all groups
        for title, functions in COMMAND_GROUPS.items():
            with formatter.section(title):
                names = [*map(command_name, functions)]
                commands = [self.commands[name] for name in names]
                texts = [each.get_short_help_str(limit=1_000) for each in commands]
                labels = [name.ljust(width) for name in names]
                formatter.write_dl([*zip(labels, texts, strict=True)])


app = typer.Typer(
    name="rlcli",
    cls=_CommandLine,
    help="Train, evaluate and render reinforcement learning agents from YAML recipes.",
    rich_markup_mode=None,  # halves the time of `--help`
    context_settings={"help_option_names": ["-h", "--help"]},
)


class _Command(TyperCommand):
    """A command during which stdout is for its data only."""

    def invoke(self, ctx: Any) -> Any:
        options.remember_typed(ctx)
        with output.reserve_stdout():
            return super().invoke(ctx)


for _name in COMMANDS:
    # Shadows the built-ins `eval` and `list`, which this file does not use.
    app.command(command_name(_name), cls=_Command)(
        importlib.import_module(f"rlcli.cli.{_name}").command
    )


@app.callback(invoke_without_command=True)
def _rlcli(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.")
    ] = False,
) -> None:
    if version:
        output.print_data(f"rlcli {rlcli.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        output.print_message(context.get_help())
        raise typer.Exit(errors.USAGE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line, by default `sys.argv`, and returns the exit code.

    Prints an `RlcliError` as a message and a hint on stderr, without a traceback.
    """
    output.open_standard_streams()
    if os.environ.get(completion.VARIABLE):
        return completion.answer_shell(typer.main.get_command(app))
    code = _run_and_report([*(sys.argv[1:] if arguments is None else arguments)])
    for stream in (sys.stdout, sys.stderr):
        output.flush(stream)
    if arguments is None:  # libraries print at the exit of the process, too
        output.redirect_stdout()
    return code


def _run_and_report(arguments: Sequence[str]) -> int:
    try:
        return _run(arguments)
    except RlcliError as error:
        output.print_error(error)
        return error.code
    except typer.TyperException as error:
        output.print_message(_format_usage_error(error))
        return error.exit_code
    except KeyboardInterrupt as stop:
        output.print_message("\n".join(getattr(stop, "__notes__", ["interrupted"])))
        return errors.INTERRUPTED
    except BrokenPipeError:
        output.silence(output.data_stream())
        return errors.OK  # the reader, for example `head`, has closed the pipe
    except OSError as error:
        # No space, no permission, no such folder: the state of the machine, not a bug.
        # Where more is known, an RlcliError is raised instead.
        where = f"`{error.filename}`: " if error.filename else ""
        output.print_error(RlcliError(f"{where}{error.strerror or error}"))
        return errors.USER_ERROR
    except Exception as error:
        explained = _explain_variables(error)
        if explained is None:
            raise
        output.print_error(explained)
        return explained.code


def _run(arguments: Sequence[str]) -> int:
    errors.check_platform()
    for message in switches.ignore_variables():
        output.print_message(f"warning: {message}")
    command = typer.main.get_command(app)
    try:
        # `command.main` would print errors in another format and exit the process.
        with (
            output.print_warnings(),
            command.make_context("rlcli", [*arguments]) as context,
        ):
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except SystemExit as end:  # of a signal, or of `--install-completion`
        for note in getattr(end, "__notes__", ()):
            output.print_message(note)
        return int(end.code or errors.OK)
    return errors.OK


def _format_usage_error(error: typer.TyperException) -> str:
    """A usage error of Typer in rlcli's format, with a hint to `--help`."""
    sentence = " ".join(error.format_message().split()).removesuffix(".")
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "rlcli"
    hint = _hint_for_name(sentence)
    if hint:
        sentence = sentence.partition(" (")[0]  # similar names, which are not meant
    hint = hint or f"see `{path} --help`"
    return f"error: {RlcliError(sentence[:1].lower() + sentence[1:], hint)}"


def _hint_for_name(sentence: str) -> str:
    """The hint to the name in rlcli of a command or option; "" for other errors."""
    match = re.match("No such (command|option):? '?([^' ]+)", sentence)
    if match is None:
        return ""
    from rlcli.registry.common_names import find_hint  # here, to keep `--help` fast

    return find_hint(match[1], match[2].lstrip("-"))


def _explain_variables(error: BaseException) -> RlcliError | None:
    """The error for variables that a library could not use; None for other errors."""
    modules = {*_modules(error)}
    for library, (reader, variable) in _READERS.items():
        names = [name for name in os.environ if re.fullmatch(variable, name)]
        if any(re.fullmatch(reader, module) for module in modules):
            found = _variables_in(str(error), names)
        else:
            found = [name for name in names if _refuses(error, name)]
        if found:
            settings = ", ".join(
                quote(f"{name}={os.environ[name]}") for name in sorted(found)
            )
            reason = quote(error, _LONGEST)[1:-1] or type(error).__name__
            explained = RlcliError(
                f"{library} cannot use the environment variable {settings}: {reason}",
                "correct its value, or unset it",
            )
            explained.__cause__ = error
            return explained
    return None


def _variables_in(message: str, names: Sequence[str]) -> Sequence[str]:
    """The variables that an error names, else those that select what is used."""
    words = message.lower().replace("jax.", "jax_")  # an attribute, or the variable
    named = [name for name in names if name.lower() in words]
    selecting = [name for name in names if name.startswith(("JAX_PLATFORM", "MPL"))]
    return named or selecting or names


def _refuses(error: BaseException, name: str) -> bool:
    """Whether an error of JAX says that it cannot use a variable that it reads late.

    The tracebacks of these errors do not have the frames of JAX.
    """
    words = _LATE.get(name)
    return isinstance(error, RuntimeError) and bool(words) and words in str(error)


def _modules(error: BaseException | None) -> Iterator[str]:
    """The modules in which an error, or a cause of it, was raised."""
    while error is not None:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        if frames:
            yield str(frames[-1].f_globals.get("__name__"))
        error = error.__cause__ or error.__context__
