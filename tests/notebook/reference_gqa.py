"""Right answers to exercise 4, written a third way for the tests of its checks."""


def gqa_factors(s, groups, tau):
    factor = [(tau / each) ** 0.5 if each > tau else 1.0 for each in s]
    keys = [min(factor[at : at + groups]) for at in range(0, len(s), groups)]
    return factor, keys


def after_clip(s, groups, tau):
    q, k = gqa_factors(s, groups, tau)
    return [each * q[h] * k[h // groups] for h, each in enumerate(s)]


def after_wrong_clip(s, groups, tau):
    out = after_clip(s, groups, tau)
    q, k = gqa_factors(s, groups, tau)
    for at in range(0, len(s), groups):
        more = 1.0
        for factor in q[at : at + groups]:
            more *= factor
        for h in range(at, at + groups):
            out[h] *= more / k[at // groups]
    return out


ANSWERS = {"04a": gqa_factors, "04b": after_clip, "04c": after_wrong_clip}
