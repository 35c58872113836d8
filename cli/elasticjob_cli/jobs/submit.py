"""`elasticjob submit` and `init`: create a job, or write the file of one to start from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from elasticjob_api.meta import Json
from elasticjob_client.access import Access
from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, NoLogs, WrongArgument
from elasticjob_client.logs import LogOptions
from elasticjob_client.members import Choice
from elasticjob_client.scripts import of_script
from elasticjob_client.starter import starter
from elasticjob_client.submission import (
    Submission,
    in_namespace_of,
    of_job_file,
    of_program,
    read_job_file,
)
from elasticjob_client.submission import submit as create
from elasticjob_client.template_options import OPTIONS, Completed, completed, template_of
from elasticjob_client.template_options import Option as TemplateOption
from elasticjob_client.waiting import wait_for
from elasticjob_client.yaml_text import as_yaml
from elasticjob_kube.resources import ELASTIC_JOBS

from elasticjob_cli.common.arguments import Argument, Option
from elasticjob_cli.common.cluster_options import for_cluster, with_options
from elasticjob_cli.common.local_runs import check_name
from elasticjob_cli.common.options import Framework, reported, run
from elasticjob_cli.common.streams import echo
from elasticjob_cli.jobs.logs import print_logs

Given = Mapping[str, Sequence[str]]
"""The texts that each option was given, by its name; only those of options that were given."""
_REQUIREMENTS = "requirements"
_SCRIPT = ".py"


def with_template(
    *, without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a `JobTemplate`, in place of its parameter `given`.

    `without`: names of options that the command does not have.
    """
    options = {
        name.replace("-", "_"): _annotation(name, option)
        for name, option in OPTIONS.items()
        if name not in without
    }
    options[_REQUIREMENTS] = Annotated[
        list[str] | None,
        Option(help="A requirements.txt, as --pip for each line.", metavar="FILE"),
    ]

    def value(**given: Any) -> Given:
        texts = {name.replace("_", "-"): each for name, each in given.items() if each}
        return {
            name: each if isinstance(each, list) else [str(each)] for name, each in texts.items()
        }

    return lambda command: with_options(command, "given", options, value)


def _annotation(name: str, option: TemplateOption) -> Any:
    flags = [f"--{name}", "--dir"] if name == "file" else [f"--{name}"]
    several = "; may be given more than once." if option.many else ""
    text = option.help.rstrip(".") + several if several else option.help
    declared = Option(*flags, help=text, metavar=option.metavar)
    if name == "framework":
        return Annotated[Framework | None, Option(*flags, help=text)]
    return Annotated[(list[str] if option.many else str) | None, declared]


def read_requirements(given: Given) -> Given:
    """Put the lines of requirements files in place of the files. Raises `WrongArgument`."""
    texts = dict(given)
    for file in texts.pop(_REQUIREMENTS, ()):
        try:
            texts["pip"] = [*texts.get("pip", ()), *Path(file).read_text().splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise WrongArgument(f"--{_REQUIREMENTS} {file} cannot be read: {error}") from error
    return texts


class DryRun(StrEnum):
    """The program that checks a job without creating it."""

    CLIENT = "client"
    SERVER = "server"


class JobFormat(StrEnum):
    """The formats in which the created job is printed."""

    YAML = "yaml"
    NAME = "name"


@for_cluster
@with_template()
def submit(
    source: Annotated[
        str,
        Argument(
            help="A job file (YAML; - for standard input), or a Python script.", metavar="FILE"
        ),
    ],
    access: Access,
    given: Given,
    args: Annotated[list[str] | None, Argument(help="Arguments of the script, after --.")] = None,
    name: Annotated[
        str | None,
        Option(help="Name of the job; default: the script's; if it is in use, with letters."),
    ] = None,
    no_defaults: Annotated[
        bool, Option("--no-defaults", help="Use no defaults of the namespace.")
    ] = False,
    dry_run: Annotated[
        DryRun | None,
        Option(
            help="Create nothing; server: let it check the job; client: ask nobody, so without "
            "the namespace's defaults."
        ),
    ] = None,
    output: Annotated[
        JobFormat | None, Option("--output", "-o", help="Print the job, or its name.")
    ] = None,
    follow: Annotated[
        bool, Option("--follow", "-f", help="Follow rank 0, and end as the job does.")
    ] = False,
) -> None:
    """Create a job from a job file or a Python script.

    A script and files of at most 768 KiB are stored with the job. The image has the packages that
    it imports, or --pip installs them.
    With --follow, exit code 3: the job has failed; Ctrl-C leaves it running.
    """
    with reported():
        if Path(source).suffix == _SCRIPT:
            own = template_of(read_requirements(given))
            program = of_script(Path(source), args or (), own.files)
            fixed = None
        else:
            options = [f"--{option}" for option in given]
            options += ["--name"] * bool(name) + ["arguments"] * bool(args)
            fixed = _of_file(source, options)
        if dry_run is DryRun.CLIENT:
            _print((fixed or of_program(program, own, name=name)).manifests(), output, dry_run)
            return

    async def work(cluster: Cluster) -> None:
        submission = fixed
        origin = ""
        if submission is None:
            both = Completed(own) if no_defaults else await completed(cluster, own)
            submission = of_program(program, both.template, name=name)
            origin = both.origin
        where = in_namespace_of(cluster, submission, chosen=access.namespace)
        made = await create(where, submission, dry_run=dry_run is not None)
        made["metadata"].pop("managedFields", None)
        if origin:
            as_yaml = output is JobFormat.YAML
            echo(f"# {origin}" if as_yaml else f"with {origin}", err=not as_yaml)
        _print([made], output, dry_run)
        if follow and dry_run is None:
            sys.stdout.flush()
            await _follow(where, made["metadata"]["name"])

    run(access, work)


async def _follow(cluster: Cluster, name: str) -> None:
    """Follow the logs of rank 0 until the job has ended. Raises `JobEnded` if it has failed."""
    try:
        await print_logs(cluster, name, Choice(), LogOptions(), follow=True)
    except NoLogs as error:
        echo(str(error), err=True)
    await wait_for(cluster, name, "succeeded")
    echo(f"job {name} is Succeeded", err=True)


def _of_file(file: str, options: list[str]) -> Submission:
    """Return the submission of a job file. Raises `WrongArgument` for options of scripts."""
    if options:
        raise WrongArgument(
            f"{', '.join(options)}: only for scripts ({_SCRIPT}); a job file has its own fields"
        )
    if file == "-":
        return of_job_file(sys.stdin.read(), source="standard input")
    return read_job_file(Path(file))


def _print(made: list[Json], output: JobFormat | None, dry_run: DryRun | None) -> None:
    metadata = made[0]["metadata"]
    name = metadata.get("name") or f"{metadata.get('generateName', '')}…"
    if output is JobFormat.NAME:
        echo(f"{ELASTIC_JOBS.plural}.{ELASTIC_JOBS.group}/{name}")
    elif output is JobFormat.YAML:
        echo(as_yaml(made), nl=False)
    elif dry_run is DryRun.SERVER:
        echo(f"job {name} would be created (the API server accepts it)")
    elif dry_run is DryRun.CLIENT:
        echo(f"job {name} would be created (not shown to the API server)")
    else:
        echo(f"job {name} is submitted; elasticjob logs -f {name} follows it")


@with_template(without=("framework", "file"))
def init(
    framework: Annotated[Framework, Option(help="Framework of the training.")],
    given: Given,
    name: Annotated[str, Option(help="Name of the job, and of the file: NAME.yaml.")] = "train",
) -> None:
    """Write a commented job file for a framework.

    The file is NAME.yaml in this folder, for `elasticjob submit`. An existing file is kept.
    """
    path = Path(f"{name}.yaml")
    with reported():
        check_name(name)
        template = template_of(read_requirements(given))
        text = starter(framework.value, name=name, template=template)
        try:
            with path.open("x") as file:
                file.write(text)
        except FileExistsError as error:
            raise ClientError(f"{path} exists; give another --name, or remove it") from error
        except OSError as error:
            raise ClientError(f"{path} cannot be written: {error.strerror or error}") from error
    echo(f"{path} is written; change image and command, then: elasticjob submit {path}")
