"""Windows: every frame is covered, and answers come back where they belong."""
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from mabe_nb.train.arithmetic.windows import gather, overlap_average, window_starts

shapes = dict(frames=st.integers(1, 400), length=st.integers(1, 60),
              gap=st.integers(1, 5), share=st.floats(.05, 1))


def lay(frames, length, gap, share):
    "Starts with a stride of a share of what a window reaches over."
    return window_starts(frames, length, gap, max(1, int(share*length*gap)))


@settings(deadline=None, max_examples=100)
@given(**shapes)
def test_starts_cover_the_video(frames, length, gap, share):
    starts, span = lay(frames, length, gap, share), (length - 1)*gap + 1
    assert starts[0] == 0 and (np.diff(starts) > 0).all()
    assert starts[-1] == max(frames - span, 0)
    covered = np.zeros(frames, bool)
    for s in starts: covered[s:s + length*gap] = True
    assert covered.all()


@settings(deadline=None, max_examples=100)
@given(frames=st.integers(1, 400), length=st.integers(1, 60), share=st.floats(.05, 1))
def test_there_and_back(frames, length, share):
    x = np.random.default_rng(frames).random((frames, 3))
    starts = lay(frames, length, 1, share)
    back = overlap_average(gather(x, starts, length), starts, 1, frames)
    np.testing.assert_allclose(back, x, rtol=1e-12)


@settings(deadline=None, max_examples=100)
@given(**shapes)
def test_there_and_back_with_gaps(frames, length, gap, share):
    "Frames that were read come back exactly; those between lie on a straight line."
    stride = gap * max(1, int(share * length))
    frames = (frames // stride) * stride + (length - 1) * gap + 1 # All windows in step
    x = np.random.default_rng(frames).random((frames, 2))
    starts = window_starts(frames, length, gap, stride)
    back = overlap_average(gather(x, starts, length, gap), starts, gap, frames)
    seen = np.arange(0, frames, gap)
    want = np.stack([np.interp(np.arange(frames), seen, x[seen, c]) for c in (0, 1)], 1)
    np.testing.assert_allclose(back, want, rtol=1e-9)


@settings(deadline=None, max_examples=100)
@given(**shapes, far=st.integers(1, 400))
def test_windows_out_of_step_are_averaged(frames, length, gap, share, far):
    "Each has its own lines; where one ends the next goes on, and no frame is left out."
    x = np.random.default_rng(frames).random((frames, 2))
    starts = window_starts(frames, length, gap, max(1, int(share*length*gap)), [length * gap + far])
    back = overlap_average(gather(x, starts, length, gap), starts, gap, frames)
    lone = [overlap_average(gather(x[a:], [0], length, gap), np.array([0]), gap,
                            min(len(x) - a, (length - 1) * gap + 1)) for a in starts]
    for t in np.random.default_rng(frames).integers(0, frames, 3):
        of = [w[t - a] for a, w in zip(starts, lone) if a <= t < a + len(w)]
        if of: # More than a gap from the ends of windows, nothing else has a say
            ends = [abs(t - e) for a, w in zip(starts, lone) for e in (a - 1, a + len(w))]
            assert min(ends) < gap or ((back[t] >= np.min(of, 0) - 1e-9).all()
                                       and (back[t] <= np.max(of, 0) + 1e-9).all())
    assert (back >= x.min() - 1e-9).all() and (back <= x.max() + 1e-9).all()


@settings(deadline=None, max_examples=40)
@given(**shapes)
def test_torch_gathers_the_same(frames, length, gap, share):
    x = np.random.default_rng(0).random((frames, 2)).astype(np.float32)
    starts = lay(frames, length, gap, share)
    a, b = (gather(v, starts, length, gap) for v in (x, torch.from_numpy(x)))
    assert isinstance(b, torch.Tensor) and np.array_equal(a, b.numpy())
    assert a.shape == (len(starts), length, 2)


def test_the_middle_of_a_window_counts_for_more():
    starts = np.array([0, 5])
    answers = np.stack([np.zeros((10, 1)), np.ones((10, 1))])
    out = overlap_average(answers, starts, 1, 15)[:, 0]
    assert (out[:5] == 0).all() and (out[10:] == 1).all()
    assert (np.diff(out[4:11]) > 0).all()


def test_what_lies_past_the_end_is_not_heard():
    answers = np.zeros((1, 10, 1))
    answers[:, 3:] = 9
    assert (overlap_average(answers, np.array([0]), 1, 3) == 0).all()


@pytest.mark.parametrize("frames", [0, -1])
def test_no_frames_no_windows(frames):
    assert len(window_starts(frames, 100)) == 0
