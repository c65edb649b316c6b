"""Words click's errors about the command line like all other errors: the field, what is wrong, the remedy."""

from __future__ import annotations

import click


def sentence(error: click.ClickException) -> str:
    """Makes one line of the error, without click's `Error:` and `Usage:`."""
    said = " ".join(_words(error).split()).rstrip(".")
    where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else ""
    return f"{said} (see `{where} --help`)" if where else said


def _words(error: click.ClickException) -> str:
    if isinstance(error, click.MissingParameter):
        return f"{_field(error)}: is missing"
    if isinstance(error, click.BadParameter) and (error.param is not None or error.param_hint):
        return f"{_field(error)}: {_small(error.message)}"
    if isinstance(error, click.NoSuchOption):
        meant = f"; did you mean {' or '.join(sorted(error.possibilities))}?" if error.possibilities else ""
        return f"{error.option_name}: no such option{meant}"
    if isinstance(error, click.BadOptionUsage):
        return f"{error.option_name}: {_small(error.message)}"
    return _small(error.format_message())


def _field(error: click.BadParameter) -> str:
    if isinstance(error.param, click.Option):
        return max(error.param.opts, key=len)
    if error.param is not None:
        return error.param.human_readable_name.upper()
    hint = error.param_hint
    return hint if isinstance(hint, str) else " or ".join(hint or ())


def _small(text: str) -> str:
    return text[:1].lower() + text[1:]
