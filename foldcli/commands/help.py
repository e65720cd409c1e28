"""`foldcli help`: the pages of docs/, which are part of the package."""

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from foldcli.cli import COMMANDS, cli
from msa.base.errors import MissingError

PAGES = Path(__file__).parents[1] / "docs"


def topics() -> dict[str, Path]:
    """Return the pages by name, such as "search" or "how-to/resume", without README, the index page."""
    paths = {path.relative_to(PAGES).with_suffix("").as_posix(): path for path in PAGES.rglob("*.md")}
    paths.pop("README", None)
    # those of subfolders last
    return {name: paths[name] for name in sorted(paths, key=lambda name: (name.count("/"), name))}


def title(page: Path) -> str:
    """Return a page's first heading, without code marks."""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            return line[2:].replace("`", "")
    return ""


class TopicType(click.ParamType):
    """A click type for a topic: the name of a page or of a command."""

    name = "TOPIC"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the topic if it exists."""
        if value not in topics() and value not in COMMANDS:
            self.fail(f"there is no topic {value!r}; `foldcli help` lists them", param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the pages whose names start with the incomplete text."""
        return [
            CompletionItem(name, help=title(page))
            for name, page in topics().items()
            if name.startswith(incomplete)
        ]


@click.command("help")
@click.argument("topic", type=TopicType(), required=False, metavar="[TOPIC]")
@click.pass_context
def command(context: click.Context, topic: str | None) -> None:
    """Read a page of the documentation.

    Without TOPIC, lists the topics. Pages are Markdown, shown with $PAGER on a terminal. For a command
    without a page, shows its --help.
    """
    pages = topics()
    if topic is None and not pages:
        raise MissingError(f"the documentation is missing: {PAGES}", "Install foldcli again.")
    if topic is None:
        width = max(map(len, pages))
        click.echo("Topics for `foldcli help TOPIC`; for options, see `foldcli COMMAND --help`:\n")
        for name, page in pages.items():
            click.echo(f"  {name:<{width}}  {title(page)}")
    elif topic in pages:
        click.echo_via_pager(pages[topic].read_text(encoding="utf-8"))
    else:
        topic_command = cli.get_command(context, topic)
        assert topic_command is not None
        click.echo(topic_command.get_help(click.Context(topic_command, info_name=f"foldcli {topic}")))
