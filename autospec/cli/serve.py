"""``autospec serve``: a server from a profile."""

from __future__ import annotations

from pathlib import Path

import click

from autospec.cli.options import PROFILE, force_option, model_option, notify

__all__ = ["serve_command"]


@click.command("serve")
@click.argument("path", metavar="PROFILE", type=PROFILE)
@click.argument("extra", metavar="[-- SGLANG FLAGS]", nargs=-1, type=click.UNPROCESSED)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=30000, show_default=True, type=click.IntRange(1, 65535), help="Port to take."
)
@click.option("--log", "log_path", type=click.Path(path_type=Path), help="Keep the server's log.")
@click.option("--launch-timeout", default="10m", show_default=True, help="Time to be ready.")
@click.option(
    "--policy",
    metavar="NAME|PATH",
    help="Runtime policy.  [default: PROFILE's own .policy.yaml, else throughput]",
)
@click.option("--no-policy", is_flag=True, help="Keep the profile's settings, whatever comes.")
@model_option
@force_option
def serve_command(
    path: Path,
    *,
    extra: tuple[str, ...],
    host: str,
    port: int,
    log_path: Path | None,
    launch_timeout: str,
    policy: str | None,
    no_policy: bool,
    model: str | None,
    force: bool,
) -> None:
    """Start an SGLang server as a profile says, and keep it until Ctrl-C.

    A profile whose verdict is plain decoding starts a plain server and says why. Otherwise a policy
    inside the server decides before each step whether, and how deep, to speculate.
    """
    if policy is not None and no_policy:
        raise click.UsageError("--policy and --no-policy exclude each other")
    from autospec.cli.serving import keep_serving
    from autospec.engine.args import extra_args
    from autospec.profile import load_profile
    from autospec.tune.budget import parse_duration
    from autospec.tuning.deploy import fit_profile
    from autospec.tuning.prepare import server_environment
    from autospec.tuning.steer import plan_steering

    timeout_s = parse_duration(launch_timeout)
    flags = extra_args(extra)
    profile = fit_profile(load_profile(path), model=model, force=force, notify=notify)
    what = "plain decoding" if profile.choice.config.is_plain else str(profile.choice.config)
    click.echo(f"{what}: {profile.verdict.reason}", err=True)
    steered = plan_steering(path, profile, policy=policy, without=no_policy)
    click.echo(steered.reason, err=True)
    keep_serving(
        {**profile.server_args(), **flags, "host": host},
        environment=server_environment(profile.environment.device),
        steered=steered,
        port=port,
        log_path=log_path,
        timeout_s=timeout_s,
    )
