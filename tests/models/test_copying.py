"""A tiny model whose untrained weights copy: told a row of words twice, it knows the second half by the first."""

import pytest
import torch

from openmanus_rl.errors import UserError
from openmanus_rl.models.tiny import TinyModelSpec, random_model, train_tokenizer

WORDS = [f"word_{number:03d}" for number in range(300)]
TOKENIZER = train_tokenizer([" ".join(WORDS)] * 3, TinyModelSpec(vocab_size=1024))


def copying_of(spec: TinyModelSpec, length: int = 20) -> tuple[float, float]:
    """Of the second half of random rows, how much is what the model would say, and the mean probability it gives it."""
    row = torch.randint(0, len(TOKENIZER), (32, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        chances = random_model(spec, TOKENIZER, seed=0)(row.repeat(1, 2)).logits[:, length:-1].softmax(-1)
    right = row[:, 1:]
    return float((chances.argmax(-1) == right).float().mean()), float(chances.gather(-1, right[..., None]).mean())


def share_copied(spec: TinyModelSpec, length: int = 20) -> float:
    return copying_of(spec, length)[0]


@pytest.mark.parametrize("layers", [2, 4])
def test_it_copies_before_it_has_learnt_anything(layers):
    assert share_copied(TinyModelSpec(layers=layers, heads=2, copying=True)) > 0.3
    assert share_copied(TinyModelSpec(layers=layers, heads=2)) < 0.05


def test_what_it_copies_is_also_what_it_samples():
    said, sampled = copying_of(TinyModelSpec(layers=4, heads=2, copying=True))
    assert sampled > said / 2, "the many words that are not meant do not drown the one that is"


def test_it_copies_over_a_distance():
    assert share_copied(TinyModelSpec(layers=2, heads=2, copying=True), length=100) > 0.15


def share_recalled(spec: TinyModelSpec, lines: int = 5) -> float:
    """Of lines `a 1 b`, `c 1 d` …, how often the model, told `c 1` again, says d."""
    chance = torch.Generator().manual_seed(1)
    row = torch.stack([torch.randperm(len(TOKENIZER) - 300, generator=chance)[: 3 * lines] + 300 for _ in range(128)])
    row[:, 1::3] = 299
    with torch.no_grad():
        said = random_model(spec, TOKENIZER, seed=0)(torch.cat([row, row[:, 3:5]], dim=1)).logits[:, -1].argmax(-1)
    return float((said == row[:, 5]).float().mean())


def test_it_goes_on_with_the_line_it_is_in_though_other_lines_have_the_same_last_word():
    assert share_recalled(TinyModelSpec(layers=2, heads=2, copying=True)) > 0.3


def test_the_same_seed_gives_the_same_weights():
    spec = TinyModelSpec(layers=2, heads=2, copying=True)
    one, other = (random_model(spec, TOKENIZER, seed=3).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("too_small", [{"layers": 1}, {"heads": 8}])
def test_a_model_that_is_too_small_to_copy_is_refused(too_small):
    with pytest.raises(UserError, match="cannot copy"):
        TinyModelSpec(copying=True, **too_small)
