"""Command line of the process node; `elasticjob dev up` starts it."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from elasticjob_api.quantity import parse_quantity

from elasticjob_localcluster.node.node import Settings, run


def main() -> None:
    """Read the command line and run the node."""
    parser = argparse.ArgumentParser(
        prog="python -m elasticjob_localcluster.node", description=__doc__
    )
    parser.add_argument(
        "--kubeconfig", type=Path, required=True, help="of the user system:node:NAME"
    )
    parser.add_argument(
        "--serving-cert", type=Path, required=True, help="certificate for 127.0.0.1 (PEM)"
    )
    parser.add_argument("--serving-key", type=Path, required=True, help="its key (PEM)")
    parser.add_argument(
        "--client-ca",
        type=Path,
        required=True,
        help="the authority of the API server's client certificate (PEM)",
    )
    parser.add_argument(
        "--name", default="process-node", help="name of the node (default: %(default)s)"
    )
    parser.add_argument(
        "--state", type=Path, required=True, help="directory for logs and scratch files"
    )
    parser.add_argument(
        "--capacity",
        action="append",
        default=[],
        type=_amount,
        metavar="RESOURCE=QUANTITY",
        help="report another amount than the machine has, for example cpu=64; may be repeated",
    )
    parser.add_argument(
        "--register-with-taints",
        dest="taints",
        action="append",
        default=[],
        type=_taint,
        metavar="KEY=VALUE:EFFECT",
        help="keep pods away that do not tolerate this; may be repeated",
    )
    parser.add_argument(
        "--pods-api-server",
        metavar="URL",
        help="where containers reach the API server (default: where the node does)",
    )
    parser.add_argument(
        "--inherit",
        dest="inherited",
        action="append",
        default=[],
        metavar="NAME",
        help="a variable of the node's own environment that containers get, too; may be repeated",
    )
    given = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    asyncio.run(run(Settings(**vars(given) | {"capacity": dict(given.capacity)})))


def _amount(text: str) -> tuple[str, str]:
    name, equals, quantity = text.partition("=")
    try:
        parse_quantity(quantity)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected RESOURCE=QUANTITY, not {text!r}")
    return name, quantity


def _taint(text: str) -> dict[str, str]:
    name, colon, effect = text.rpartition(":")
    key, _, value = name.partition("=")
    if not key or not colon or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE:EFFECT, not {text!r}")
    return {"key": key, "value": value, "effect": effect}


if __name__ == "__main__":
    main()
