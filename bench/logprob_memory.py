"""Peak memory of log-probs and their gradient: through the package's head against all logits at once.

    python bench/logprob_memory.py

8 rows of 1,024 tokens, a vocabulary of 49,152, on a small decoder so that the head is what counts. Each side runs in a
process of its own; its peak is what it needed beyond what it had with the model loaded. The other side computes no
entropies, ours does.
"""

import argparse
import json
import resource
import subprocess
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from openmanus_rl.models.forward import token_log_probs

ROWS, TOKENS, VOCABULARY = 8, 1024, 49_152
SIDES = ("full logits", "ours")


def small_decoder() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=TOKENS,
            tie_word_embeddings=True,
        )
    )


def log_probs_of(side: str, model: LlamaForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    if side == "full logits":
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
        return torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    positions = torch.arange(ids.shape[1]).expand_as(ids)
    return token_log_probs(model, ids, None, positions, positions > 0)[0]


def peak_memory() -> int:
    """Bytes, of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(side: str) -> dict[str, float]:
    torch.set_num_threads(1)
    model = small_decoder()
    ids = torch.randint(VOCABULARY, (ROWS, TOKENS), generator=torch.Generator().manual_seed(1))
    log_probs_of(side, model, ids[:1, :8]).sum().backward()  # loads the kernels
    model.zero_grad()
    before = peak_memory()
    total = log_probs_of(side, model, ids).sum()
    total.backward()
    return {"gigabytes": (peak_memory() - before) / 1e9, "log_probs": total.item(), "gradient": gradient_norm(model)}


def gradient_norm(model: LlamaForCausalLM) -> float:
    return float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", choices=SIDES, help="measure one side in this process")
    side = parser.parse_args().side
    if side:
        print(json.dumps(measure(side)))
        return
    found = {}
    for side in SIDES:
        answer = subprocess.run([sys.executable, __file__, "--side", side], capture_output=True, text=True, check=True)
        found[side] = json.loads(answer.stdout.splitlines()[-1])
        print(f"{side:12} {found[side]['gigabytes']:6.2f} GB   sum of log-probs {found[side]['log_probs']:.1f}")
    full, ours = (found[side] for side in SIDES)
    print(f"gradient norms {full['gradient']:.4f} and {ours['gradient']:.4f}")
    print(f"ratio {ours['gigabytes'] / full['gigabytes']:.3f}")


if __name__ == "__main__":
    main()
