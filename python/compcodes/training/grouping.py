"""How codebooks are assigned to groups, and dimensions to the groups."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from compcodes.errors import ArgumentValueError
from compcodes.training.shards import Doubles, Floats

__all__ = ["ALONE", "CODEWORDS", "JOINT", "TOGETHER", "Groups", "alone", "grouped", "splits"]

TOGETHER = 64
"""The most codebooks in a group."""
ALONE = 2560
"""Codewords over all codebooks up to which "auto" makes one group. 9 or 10 codebooks of 256 found up to .01 more of the
10 best together than as a trunk and a group; 12 and 16 no more, with five times the training and eight times the
encoding."""
JOINT = 4096
"""The same, 16 codebooks of 256, where several groups cannot be trained (from given codebooks, in batches, of vectors
that are not all in this process), or overfit few vectors: of 3,000 one group of 16 found .02 to .06 more, of those and
of others."""
CODEWORDS = 2048
"""The approximate number of codewords over all codebooks of a group: 8 codebooks of 256."""
FEW = 512
"""The same if there are few vectors."""
PER_CODEWORD = 4
"""The least number of vectors per codeword of a group. Smaller groups overfit less, but find less even among vectors
that they were not trained on: with 5 vectors per codeword, groups of 8 codebooks beat groups of 3."""


@dataclass(frozen=True, eq=False)
class Groups:
    """The number of codebooks and dimensions of each group, and the columns (d, d) that span the groups.

    `trunk` codebooks over all dimensions come before those of the groups.
    """

    members: list[int]
    sizes: list[int]
    basis: Floats
    trunk: int = 0

    def columns(self, group: int) -> slice:
        """Return which columns span a group."""
        first = sum(self.sizes[:group])
        return slice(first, first + self.sizes[group])

    def axes(self, group: int | None, directions: Floats | None) -> Floats:
        """Return axes whose products with a vector are its coordinates in a group, or in all; stretched."""
        basis = self.basis if group is None else self.basis[:, self.columns(group)]
        if directions is not None:
            basis = basis + directions.T @ (directions @ basis)
        return np.ascontiguousarray(basis)

    def places(self, group: int) -> slice:
        """Return the places of a group's codebooks, after those of the trunk."""
        first = sum(self.members[:group])
        return slice(first, first + self.members[group])

    def parts(self) -> tuple[list[int], list[int], Floats, int]:
        """Return everything in the form the core takes."""
        return self.members, self.sizes, self.basis, self.trunk


def grouped(
    n_groups: int | str, n_codebooks: int, n_codewords: int, dim: int, n: int | None = None, *, joint: bool = False
) -> int:
    """Return the number of groups; "auto" makes as few as are fast, but no more than dimensions.

    If there are few training vectors `n`, groups are smaller, or there is one. `joint` asks for one if possible.
    """
    if n_groups != "auto":
        count = int(n_groups)
        if count > n_codebooks:
            raise ArgumentValueError("n_groups", f"is {count}: {n_codebooks} codebooks make no more groups")
        if count > dim:
            raise ArgumentValueError("n_groups", f"is {count}: vectors of {dim} dimensions have no more groups")
    else:
        codewords = n_codebooks * n_codewords
        together = CODEWORDS if n is None else min(max(n // PER_CODEWORD, FEW), CODEWORDS)
        alone = JOINT if joint or together < CODEWORDS else ALONE
        count = 1 if codewords <= alone else -(-codewords // together)
        count = min(max(count, -(-n_codebooks // TOGETHER)), n_codebooks, dim)
    if n_codebooks > TOGETHER * count:
        raise ArgumentValueError(
            "n_codebooks",
            f"is {n_codebooks} in {count} group{'s' * (count > 1)}: want at most {TOGETHER} in each, and no "
            f"more groups than dimensions ({dim})",
        )
    return count


def alone(n_codebooks: int, n_codewords: int) -> int:
    """Return the approximate number of codebooks per group if there are enough vectors."""
    return min(max(CODEWORDS // n_codewords, 1), n_codebooks, TOGETHER)


def splits(covariance: Doubles, n_codebooks: int, n_codewords: int, n_groups: int) -> list[Groups]:
    """Return ways to split vectors of this covariance.

    The information in a principal component is its share of the bits of a code, if these are allocated to lower the
    squared error most: half the logarithm of its variance over a level common to all, and nothing below the level.
    (Reverse water-filling of normal components.)

    - Dealt out: the largest share first, always to the group that has the least so far, per codebook.
    - Runs of components, from the largest, that have equally much to say per codebook.
    - Runs of equally many.
    - Runs of the vectors' own dimensions: neighbours may belong together, as pixels do.
    """
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1], vectors[:, ::-1]
    # The sign of an eigenvector is arbitrary.
    vectors = vectors * np.where(np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], 0) < 0, -1, 1)
    members = [n_codebooks // n_groups + (group < n_codebooks % n_groups) for group in range(n_groups)]
    shares = _shares(values, n_codebooks * np.log2(n_codewords))
    equal = np.ones(len(shares))
    of_equal = _runs(equal, members)
    if n_groups == 1:
        return [Groups(members, [len(values)], np.eye(len(values), dtype=np.float32))]
    deals = [(vectors, deal) for deal in (_dealt(shares, members), _runs(shares, members), of_equal)]
    return [
        Groups(
            members,
            [len(own) for own in deal],
            np.ascontiguousarray(axes[:, np.concatenate(deal)], dtype=np.float32),
        )
        for axes, deal in (*deals, (np.eye(len(values)), of_equal))
    ]


def _dealt(shares: Doubles, members: list[int]) -> list[list[int]]:
    loads, own = np.zeros(len(members)), [[] for _ in members]  # type: tuple[Doubles, list[list[int]]]
    for component, share in enumerate(shares):
        counts = [len(components) / count for components, count in zip(own, members, strict=True)]
        least = [(load if share > 0 else 0.0, count) for load, count in zip(loads, counts, strict=True)]
        group = min(range(len(members)), key=least.__getitem__)
        own[group].append(component)
        loads[group] += share / members[group]
    return own


def _runs(shares: Doubles, members: list[int]) -> list[list[int]]:
    sums, count = np.cumsum(shares), len(shares)
    wanted = sums[-1] * np.cumsum(members) / sum(members)
    ends = np.searchsorted(sums, wanted[:-1] * (1 - 1e-9)) + 1
    # At least one component each.
    for group, end in enumerate(ends):
        before = ends[group - 1] if group else 0
        ends[group] = min(max(end, before + 1), count - len(members) + group + 1)
    return [list(range(first, last)) for first, last in itertools.pairwise([0, *map(int, ends), count])]


def _shares(values: Doubles, bits: float) -> Doubles:
    """Divide `bits` among components of these variances, descending."""
    values = np.maximum(values, max(values[0], 0.0) * 1e-12)
    if values[0] <= 0:
        return np.zeros(len(values))
    logs = np.log2(values)
    # With the first n above the level, the level is their mean minus the bits of each.
    counts = np.arange(1, len(logs) + 1)
    levels = np.cumsum(logs) / counts - 2 * bits / counts
    n = int(np.flatnonzero(logs > levels)[-1]) + 1
    shares: Doubles = np.maximum(0.5 * (logs - levels[n - 1]), 0.0)
    return shares
