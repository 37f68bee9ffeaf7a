"Models and losses: shapes, sizes, what a frame depends on, PyTorch's own answers."
import numpy as np
import pytest
import torch
from hypothesis import example as this, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from mabe_nb.errors import ConfigError
from mabe_nb.train.config import TrainConfig, choices, make_config
from mabe_nb.train.presets import SPEED, preset
from mabe_nb.train.fit.losses import (answer_weights, make_loss, masked_binary_loss,
                                  partial_cross_entropy)
from mabe_nb.train.predict import probabilities_of
from mabe_nb.train.models import Conv1DBiLSTM, count_parameters, layers_of, make_model
from mabe_nb.train.models import TCN, CalMS21Conv1D, positions

QUICK = settings(max_examples=40, deadline=None)
KINDS, LOSSES = choices("model_type"), choices("loss")
SMALL = dict(conv_channels=[4, 8], lstm_hidden=8, num_heads=2)


def small(kind, **more): return TrainConfig(model_type=kind, **{**SMALL, **more})


# models

@QUICK
@given(st.sampled_from(KINDS), st.integers(1, 4), st.integers(1, 150),
       st.integers(1, 9), st.integers(1, 5))
def test_scores_for_every_frame_of_any_window(kind, windows, frames, channels, classes):
    model = make_model(small(kind), channels, classes).eval()
    x = torch.randn(windows, frames, channels)
    with torch.no_grad(): scores = model(x)
    assert scores.shape == (windows, frames, classes) and torch.isfinite(scores).all()
    with torch.no_grad():
        assert torch.equal(scores, model(x))
        assert torch.allclose(scores[-1:], model(x[-1:]), atol=1e-5)


def by_hand(cfg, i, c):
    "Parameters as the notebooks work them out."
    d, n = cfg.hidden_size or cfg.lstm_hidden, layers_of(cfg)
    widths = [i, *cfg.conv_channels]
    conv = sum(3*a*b + 3*b for a, b in zip(widths, widths[1:]))

    def lstm(first):
        return sum(8*d*(k + d + 2) for k in [first] + [2*d] * (n - 1)) + 2*d*c + c

    match cfg.model_type:
        case "conv_bilstm": return conv + lstm(widths[-1])
        case "lstm": return lstm(i)
        case "transformer": return i*d + d + n * (12*d*d + 13*d) + 2*d + d*c + c
        case "tcn": return i*d + d + n * (4*d*d + 4*d) + d*c + c
        case "calms21_conv1d":
            return 2*i + 5*i*128 + 3*128 + 5*128*64 + 3*64 + 5*64*32 + 3*32 + 672*c + c


@QUICK
@given(st.sampled_from(KINDS), st.integers(1, 300), st.integers(2, 40),
       st.integers(1, 16), st.integers(1, 4),
       st.lists(st.integers(1, 30), min_size=1, max_size=3))
def test_parameters_are_those_worked_out_by_hand(kind, i, c, half, layers, conv):
    cfg = small(kind, hidden_size=2*half, num_layers=layers, conv_channels=conv)
    assert count_parameters(make_model(cfg, i, c)) == by_hand(cfg, i, c)


SIZES = {"design": dict(conv_channels=[64, 128, 256], lstm_hidden=256, lstm_layers=2),
         "large": dict(conv_channels=[256, 384, 512], lstm_hidden=512, lstm_layers=2),
         "calms21": preset("calms21")}


def test_sizes_that_are_promised():
    def size(name, *shape):
        return count_parameters(make_model(TrainConfig(**SIZES[name]), *shape))
    assert size("design", 28, 4) == 2_761_284 == count_parameters(Conv1DBiLSTM(28, 4))
    assert size("large", 131, 4) == 11_495_044 and size("large", 131, 38) == 11_529_894
    assert size("calms21", 28, 4) == 72_540


def test_names_of_the_weights_stay():
    "Files of weights written by earlier versions still fit."
    assert list(Conv1DBiLSTM(3, 2, (4,), 5, 1).state_dict()) == [
        *(f"conv.0.0.{k}" for k in ("weight", "bias")),
        *(f"conv.0.1.{k}" for k in ("weight", "bias", "running_mean", "running_var",
                                    "num_batches_tracked")),
        *(f"lstm.{k}_l0{way}" for way in ("", "_reverse")
          for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")),
        "head.weight", "head.bias"]


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_is_honoured_and_only_in_training(kind):
    x = torch.randn(2, 40, 5)
    for rate in (0.0, 0.5):
        model = make_model(small(kind, dropout=rate, num_layers=1), 5, 3)
        torch.manual_seed(1)
        a, b = model(x), model(x)
        assert torch.allclose(a, b, atol=1e-6) == (rate == 0)
        model.eval()
        assert torch.equal(model(x), model(x))


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_learns_and_weights_come_back(kind):
    model = make_model(small(kind, num_layers=3), 5, 3)
    loss = make_loss(TrainConfig())
    loss(model(torch.randn(4, 60, 5)), torch.randint(0, 2, (4, 60, 2))).backward()
    still = [k for k, p in model.named_parameters()
             if p.grad is None or not p.grad.any()]
    assert still == []
    other = make_model(small(kind, num_layers=3), 5, 3)
    other.load_state_dict(model.state_dict())
    x = torch.randn(1, 30, 5)
    assert torch.equal(model.eval()(x), other.eval()(x))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_pattern_is_learnt(kind):
    "Which channel pulsed a few frames ago: a loss far below that of guessing."
    torch.manual_seed(0)
    cfg = small(kind, dropout=0.0, hidden_size=16)
    model, loss = make_model(cfg, 2, 3), make_loss(cfg)
    x = (torch.rand(8, 60, 2) < 0.05).float()
    labels = (F.pad(x, (0, 0, 2, 0)) + F.pad(x, (0, 0, 3, -1)) > 0)[:, :60].char()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for _ in range(100):
        optimizer.zero_grad()
        value = loss(model(x), labels)
        value.backward()
        optimizer.step()
    guess = loss(torch.zeros(8, 60, 3), labels)
    assert value < guess / 4


@QUICK
@given(st.integers(1, 12), st.integers(0, 10**6))
def test_the_tcn_sees_as_far_as_it_says(layers, seed):
    torch.manual_seed(seed)
    field = 2**(layers + 1) - 1 if layers <= 10 else 2045 + 2**(layers - 9)
    model = TCN(1, 1, 8, layers, 0).double().eval()
    x = torch.rand(1, field + 20, 1, dtype=torch.float64, requires_grad=True)
    middle = field // 2 + 10
    model(x)[0, middle].backward()
    reached = torch.nonzero(x.grad[0, :, 0]).ravel()
    assert (reached[0], reached[-1]) == (middle - field // 2, middle + field // 2)


@QUICK
@given(st.integers(1, 3), st.integers(1, 15), st.integers(1, 12), st.integers(0, 10**6))
def test_the_published_network_crop_by_crop(channels, frames, around, seed):
    "Any size of crop: dense scores equal those of one crop a frame, pooled by halves."
    torch.manual_seed(seed)
    around += 4 # the smallest crop that two layers leave something of
    net = CalMS21Conv1D(channels, 2, 0, (4, 3), 3, around)
    net(torch.randn(4, 50, channels))
    net.eval()
    video = torch.randn(frames, channels)
    padded = F.pad(video, (0, 0, around, around))
    with torch.no_grad():
        for t, scores in enumerate(net(video[None])[0]):
            x = net.norm(padded[t:t + 2*around + 1].T[None])
            for conv, norm, _, _, _ in net.blocks:
                x = F.max_pool1d(norm(F.conv1d(x, conv.weight, conv.bias)).relu(), 2, 2)
            one = F.linear(x.flatten(1), net.head.weight.flatten(1), net.head.bias)[0]
            assert torch.allclose(scores, one, atol=1e-5)


def test_normalisation_is_that_of_keras():
    norms = [m for m in CalMS21Conv1D(3, 2).modules()
             if isinstance(m, torch.nn.BatchNorm1d)]
    assert [(m.num_features, m.eps, m.momentum) for m in norms] == [
        (w, 1e-3, 0.01) for w in (3, 128, 64, 32)]


@QUICK
@given(st.integers(1, 400), st.integers(1, 65))
def test_positions_exist_for_any_length(frames, width):
    code = positions(frames, width)
    assert code.shape == (frames, width) and code.abs().max() <= 1


def test_two_halves_give_the_gradient_of_the_whole():
    "Models without batch statistics: batches divided by the weight of the step add up."
    x, labels = torch.randn(6, 30, 4), torch.randint(-1, 2, (6, 30, 2))
    for kind in ("lstm", "transformer", "tcn"):
        cfg = small(kind, dropout=0.0)
        model, loss = make_model(cfg, 4, 3), make_loss(cfg, torch.tensor([0.5, 3, 9]))
        grads = []
        for parts in ([slice(0, 6)], [slice(0, 4), slice(4, 6)]):
            model.zero_grad()
            for part in parts:
                loss(model(x[part]), labels[part], loss.weight(labels)).backward()
            grads.append(torch.cat([p.grad.ravel() for p in model.parameters()]))
        assert torch.allclose(*grads, atol=1e-6)


# losses

def example(seed, actions, frames):
    rng = np.random.default_rng(seed)
    labels = torch.from_numpy(rng.integers(-1, 2, (2, frames, actions)).astype(np.int8))
    scores = rng.normal(0, 4, (2, frames, 1 + actions)).astype(np.float32)
    weights = torch.from_numpy(rng.uniform(0.1, 9, 1 + actions).astype(np.float32))
    return torch.from_numpy(scores).requires_grad_(), labels, weights


CASES = st.tuples(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 20))


@QUICK
@given(st.sampled_from(LOSSES), CASES, st.sampled_from([0.0, 0.1]),
       st.sampled_from([0.0, 0.5, 2.0, 5.0]), st.sampled_from([None, 0.25]))
def test_losses_are_silent_about_the_unknown(kind, case, smooth, gamma, alpha):
    scores, labels, weights = example(*case)
    loss = make_loss(TrainConfig(loss=kind, label_smoothing=smooth, focal_gamma=gamma,
                                 focal_alpha=alpha), weights)
    value = loss(scores, labels)
    value.backward()
    assert value.shape == () and torch.isfinite(value) and value >= 0
    assert torch.isfinite(scores.grad).all()
    assert not scores.grad[(labels == -1).all(-1)].any()
    if "binary" in kind:
        assert not scores.grad[..., 0].any()
        assert not scores.grad[..., 1:][labels < 0].any()


@QUICK
@this((164, 1, 1), 0.0) # a loss of 0.0009
@given(CASES, st.sampled_from([0.0, 0.2]))
def test_binary_is_that_of_pytorch_over_the_known(case, smooth):
    scores, labels, weights = example(*case)
    target = (labels == 1).float() * (1 - smooth) + smooth / 2
    weight = torch.stack([torch.tensor([0, weights[0], w])[labels[..., a].long() + 1]
                          for a, w in enumerate(weights[1:])], -1)
    theirs = F.binary_cross_entropy_with_logits( # in float32 it rounds small losses off
        scores[..., 1:].double(), target.double(), weight.double(), reduction="sum")
    ours = masked_binary_loss(scores, labels, weights, smooth)
    assert torch.equal(answer_weights(labels, weights), weight)
    theirs = (theirs / weight.sum().clamp_min(1e-8)).float()
    assert torch.allclose(ours, theirs, rtol=1e-4)


@QUICK
@given(CASES)
def test_cross_entropy_is_that_of_pytorch_where_one_class_is_left(case):
    scores, labels, weights = example(*case)
    target = torch.randint(0, labels.shape[-1] + 1, labels.shape[:-1])
    allowed = F.one_hot(target, labels.shape[-1] + 1).bool()
    theirs = F.cross_entropy(scores.flatten(0, 1), target.ravel(), weights)
    ours = partial_cross_entropy(scores, allowed, weights)
    assert torch.allclose(ours, theirs, rtol=1e-4)


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_a_sure_and_right_answer_has_a_gradient(kind, gamma):
    "Where the loss is 0 to the last bit a root of it still has a finite slope."
    scores = (torch.randn(50, 4) * 40).requires_grad_()
    labels = (scores[:, 1:] > 0).char()
    labels[::2] = -1
    loss = make_loss(TrainConfig(loss=kind, focal_gamma=gamma))
    loss(scores, labels).backward()
    assert torch.isfinite(scores.grad).all()


@pytest.mark.parametrize("kind", LOSSES)
def test_losses_of_absurd_scores_are_finite(kind):
    labels = torch.tensor([[1, 0], [0, -1], [-1, -1], [0, 0]])
    for size in (0.0, 1e4, -1e4):
        scores = torch.full((4, 3), size).cumsum(-1).requires_grad_()
        value = make_loss(TrainConfig(loss=kind))(scores, labels)
        value.backward()
        assert torch.isfinite(value) and torch.isfinite(scores.grad).all()
    nothing = torch.full((4, 2), -1)
    assert make_loss(TrainConfig(loss=kind))(scores, nothing) == 0


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_losses_are_computed_in_float32(kind, dtype):
    scores, labels, weights = example(3, 3, 500)
    low = scores.detach().to(dtype)
    loss = make_loss(TrainConfig(loss=kind), weights)
    exact = loss(low.double(), labels)
    with torch.autocast("cpu", dtype): value = loss(low, labels)
    assert value.dtype == torch.float32
    assert torch.allclose(value, exact.float(), rtol=1e-5)


@QUICK
@given(st.sampled_from(LOSSES), CASES)
def test_probabilities_sum_to_one_and_keep_the_order(kind, case):
    scores = example(*case)[0].detach()
    p = probabilities_of(scores, kind)
    assert p.shape == scores.shape and (p >= 0).all()
    assert torch.allclose(p.sum(-1), torch.ones(p.shape[:-1]), atol=1e-5)
    z, q = scores[..., 1:], p[..., 1:]
    order = z.argsort(-1)
    assert (q.gather(-1, order).diff(dim=-1) >= -1e-7).all()
    if "binary" in kind:
        each = z.double().sigmoid()
        odds = p[..., 1:] / p[..., :1] # against `other`: none of them, independently
        assert torch.allclose(odds * (1 - each).prod(-1, keepdim=True).float(),
                              each.float(), rtol=1e-3, atol=1e-5)
        moved = scores.clone()
        moved[..., 0] = -1e9 # `other` is not asked
        assert torch.equal(probabilities_of(moved, kind), p)


# settings

def test_presets_of_the_speed_guide():
    assert {k: (v["model_type"], v["batch_size"], v["hidden_size"], v["amp"])
            for k, v in SPEED.items()} == {
        "fastest": ("transformer", 512, 256, True),
        "balanced": ("lstm", 256, 128, True),
        "low-memory": ("lstm", 128, 64, True)}
    assert [preset(p)["num_workers"] for p in ("fastest", "balanced")] == [4, 2]
    assert preset("low-memory")["gradient_accumulation_steps"] == 2
    for name in SPEED:
        cfg = make_config(preset(name))
        model = make_model(cfg, 28, 4)
        assert by_hand(cfg, 28, 4) == count_parameters(model)
    with pytest.raises(ConfigError, match="did you mean 'balanced'"): preset("balance")


@QUICK
@given(st.integers(1, 40), st.integers(1, 8))
def test_a_transformer_that_the_config_lets_through_can_be_built(hidden, heads):
    settings = dict(model_type="transformer", hidden_size=hidden, num_heads=heads)
    try: cfg = make_config(settings)
    except ConfigError as e: assert hidden % heads and "num_heads" in str(e)
    else: assert make_model(cfg, 3, 2).eval()(torch.zeros(1, 5, 3)).shape == (1, 5, 2)


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_layers", "lstm_hidden", "lstm_layers"])
def test_absurd_sizes_are_refused(key):
    with pytest.raises(ConfigError, match=f"^{key} is 10000000"):
        make_config({key: 10**7})
