"""The paper's Algorithm 1 on one page, literally, for any masked language model; comments give its line numbers.

`logits(x)` says what the model makes of every position of a canvas, [length, vocabulary]; of a model of Hugging Face:
`model(torch.tensor([prompt + x.tolist()])).logits[0, len(prompt):]`. The library needs half of these passes."""
# ruff: noqa: N803, N806

from collections import Counter

import numpy as np


def s3(logits, mask, length, steps, f, answer, N=4, b=2, lam=1.0, temperature=0.7, rng=None):
    rng = rng or np.random.default_rng(0)

    def log_p(x, temperature=1.0):
        scores = logits(x).double() / temperature
        scores[:, mask] = -np.inf
        return scores.log_softmax(-1).numpy()

    particles = [(np.full(length, mask), 0.0)] * N  # 1: all masked, and the NLL of the path
    for t in range(steps, 0, -1):  # 2
        children, s = [], []
        for x, nll in particles:  # 4
            p, tempered = log_p(x), log_p(x, temperature)
            for _ in range(b):  # 5
                drawn = (tempered + rng.gumbel(size=p.shape)).argmax(-1)
                sure = np.where(x == mask, p[np.arange(length), drawn], -np.inf)
                U = np.argsort(-sure, kind="stable")[: -(-int((x == mask).sum()) // t)]  # 3
                child = x.copy()
                child[U] = drawn[U]  # 6: x_{t-1} ~ p(. | x_t), at the positions U alone
                clean = np.where(child == mask, log_p(child).argmax(-1), child)  # 7: look ahead
                children.append((child, nll - sure[U].sum()))
                s.append(f(clean))  # 8
        w = np.exp(lam * (np.array(s) - max(s)))  # 11
        xi = N * w / w.sum()  # 12, 13
        particles = [children[k] for k in np.repeat(np.arange(N * b), ssp(xi, rng))]  # 14
    votes = Counter(answer(x) for x, _ in particles)
    return min(particles, key=lambda one: (-votes[answer(one[0])], one[1]))[0], particles  # 16


def ssp(xi, rng):  # two open fractions move apart, and keep their sum, until one of them is whole
    n, i = np.array(xi), 0
    for j in range(1, len(n)):
        p, q = n[i] % 1, n[j] % 1
        up, down = min(1 - p, q), min(p, 1 - q)
        if up + down > 0:
            move = up if rng.random() < down / (up + down) else -down
            n[i], n[j] = n[i] + move, n[j] - move
        if abs(n[i] - n[i].round()) < 1e-9:
            n[i], i = n[i].round(), j
    return n.round().astype(int)


if __name__ == "__main__":
    import torch

    import s3dlm
    from s3dlm.verifier import for_task

    tiny, question = s3dlm.load("tiny", progress=False), "Target: 45 Numbers: 8, 7, 11"
    prompt, judge = tiny.tokenizer.chat(question), for_task("countdown", "checker")

    def text(x):
        return tiny.tokenizer.decode([token for token in x.tolist() if token not in tiny.end_ids])

    @torch.inference_mode()
    def logits(x):
        features = tiny.denoiser.encode(torch.tensor([prompt + x.tolist()]))
        return tiny.denoiser.head(features[0, len(prompt) :])

    score = lambda x: judge.score(question, text(x)).total  # noqa: E731
    print(text(s3(logits, tiny.denoiser.mask_id, 64, 32, score, text, lam=10)[0]))
