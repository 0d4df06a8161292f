"""What SGLang 0.5.23 accepts, as a table: an invalid combination is refused before any launch.

SGLang itself checks part of this while it reads its arguments (``autospec.engine.offline`` asks
it), part only after both models are loaded, and part by crashing at the first request.
"""

from __future__ import annotations

from autospec.config import SpecConfig
from autospec.engine.args import Deployment
from autospec.engine.common_rules import COMMON_RULES
from autospec.engine.feature_rules import FEATURE_RULES
from autospec.engine.method_rules import METHOD_RULES
from autospec.engine.models import ModelInfo
from autospec.engine.rules import Case, Rule
from autospec.errors import ConfigError

__all__ = ["RULES", "Rule", "require_valid", "violations"]

#: Every rule, in the order in which violations are named.
RULES: tuple[Rule, ...] = (*COMMON_RULES, *FEATURE_RULES, *METHOD_RULES)


def violations(
    config: SpecConfig, deployment: Deployment, target: ModelInfo | None = None
) -> tuple[str, ...]:
    """Return one message for each rule that the combination breaks; it never raises.

    Args:
        config: what to draft with.
        deployment: what serves it.
        target: the target model where it is known; rules that need it hold their tongue otherwise.
    """
    case = Case(config, deployment, target)
    found = ((rule, rule.check(case)) for rule in RULES)
    return tuple(f"{config}: {problem} (rule {rule.name})" for rule, problem in found if problem)


def require_valid(
    config: SpecConfig, deployment: Deployment, target: ModelInfo | None = None
) -> None:
    """Refuse a combination that breaks a rule.

    Raises:
        ConfigError: with the first rule that is broken.
    """
    broken = violations(config, deployment, target)
    if broken:
        raise ConfigError(broken[0])
