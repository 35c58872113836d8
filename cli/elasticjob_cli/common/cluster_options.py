"""The options that choose a cluster. Imports nothing that is slow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

from elasticjob_client.access import Access

from elasticjob_cli.common.arguments import Option

_CLUSTER_OPTIONS = {
    "namespace": Annotated[
        str | None,
        Option("--namespace", "-n", help="Namespace of the job; default: the context's."),
    ],
    "context": Annotated[
        str | None, Option(help="Context of the kubeconfig; default: its current one.")
    ],
    "kubeconfig": Annotated[Path | None, Option(help="Kubeconfig file; default: $KUBECONFIG.")],
}


def for_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that choose a cluster, in place of its parameter `access`."""
    return with_options(command, "access", _CLUSTER_OPTIONS, Access)


def with_options(
    command: Callable[..., None],
    parameter: str,
    options: Mapping[str, Any],
    value: Callable[..., object],
) -> Callable[..., None]:
    """Give a command options in place of a parameter, whose value is made from what they are given.

    Args:
        command: the command.
        parameter: its name.
        options: the annotation of each option, by the name of `value`'s argument.
        value: returns the value of the parameter.
    """

    def changed(**given: Any) -> None:
        of_options = {name: given.pop(name) for name in options}
        command(**given, **{parameter: value(**of_options)})

    parameters = dict(inspect.signature(command, eval_str=True).parameters)
    del parameters[parameter]
    for name, option in options.items():
        parameters[name] = Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=option)
    changed.__doc__ = command.__doc__
    changed.__annotations__ = {name: each.annotation for name, each in parameters.items()}
    vars(changed)["__signature__"] = inspect.Signature(list(parameters.values()))
    return changed
