"""Names of model architectures that SGLang treats apart."""

from __future__ import annotations

from typing import Final

__all__ = ["HYBRID_ARCHITECTURES", "MTP_ARCHITECTURES"]

#: Targets whose checkpoint may hold their own draft layers, so that EAGLE needs no draft model:
#: ``speculative_hook.py _handle_eagle_family`` and ``model_config.py _config_draft_model``.
MTP_ARCHITECTURES: Final = frozenset(
    {
        "BailingMoeForCausalLM",
        "BailingMoeV2_5ForCausalLM",
        "BailingMoeV2ForCausalLM",
        "BailingMoeV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV4ForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "ExaoneMoEForCausalLM",
        "ExaoneMoeForCausalLM",
        "GigaChat35ForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "Glm5NextForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "GlmOcrForConditionalGeneration",
        "HYV3ForCausalLM",
        "HYV4ForCausalLM",
        "InklingForConditionalGeneration",
        "InternS2MobiusForConditionalGeneration",
        "InternS2PreviewForConditionalGeneration",
        "LongcatFlashForCausalLM",
        "MiMoForCausalLM",
        "MiMoV2FlashForCausalLM",
        "MiMoV2ForCausalLM",
        "MistralLarge3ForCausalLM",
        "NemotronH_Omni_Reasoning_V3",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "PixtralForConditionalGeneration",
        "Qwen3_5ForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen4ExpForConditionalGeneration",
        "Step3p5ForCausalLM",
        "Step3p7ForConditionalGeneration",
    }
)

#: Targets whose layers keep a state beside the KV cache (linear attention), among those above.
HYBRID_ARCHITECTURES: Final = frozenset(
    {
        "NemotronH_Omni_Reasoning_V3",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "Qwen3_5ForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3NextForCausalLM",
        "Qwen4ExpForConditionalGeneration",
    }
)
