"""Homology among training chains: groups of relatives, clusters, and the chains to hold out."""

from dataclasses import dataclass, field

import numpy as np

# limits of hits that join chains into groups and clusters
MAX_EVALUE = 1e-3
GROUP_COVERAGE = 0.4
CLUSTER_IDENTITY, CLUSTER_COVERAGE = 0.3, 0.8
# limits of the best template of chains in set B
TEMPLATE_COVERAGE, TEMPLATE_IDENTITY = 0.7, 0.4


@dataclass(frozen=True, eq=False)
class ChainHits:
    """Hits of chains among the same chains; n hits, in any order.

    Args:
        num_chains: number of chains.
        query, target: [n] int, indices of the chains.
        identity: [n], identical residues as a fraction of the alignment's columns.
        evalue: [n].
        query_coverage, target_coverage: [n], fraction of each chain between the alignment's ends.
    """

    num_chains: int
    query: np.ndarray = field(repr=False)
    target: np.ndarray = field(repr=False)
    identity: np.ndarray = field(repr=False)
    evalue: np.ndarray = field(repr=False)
    query_coverage: np.ndarray = field(repr=False)
    target_coverage: np.ndarray = field(repr=False)

    @property
    def is_related(self) -> np.ndarray:
        """[n] bool, True for hits that join their chains into one homology group."""
        return (self.evalue < MAX_EVALUE) & (self.query_coverage >= GROUP_COVERAGE)

    def groups(self) -> np.ndarray:
        """Return the homology group of each chain, [chains] int.

        Groups are joined by single linkage: a hit with E < 1e-3 that covers 40 % of its query.
        """
        return self._components(self.is_related)

    def clusters(self) -> np.ndarray:
        """Return the 30 % identity cluster of each chain, [chains] int.

        Clusters are joined by single linkage: a hit with E < 1e-3 and an identity of at least 30 % that
        covers 80 % of both chains.
        """
        coverage = np.minimum(self.query_coverage, self.target_coverage)
        is_joined = (self.evalue < MAX_EVALUE) & (self.identity >= CLUSTER_IDENTITY)
        return self._components(is_joined & (coverage >= CLUSTER_COVERAGE))

    def _components(self, is_joined: np.ndarray) -> np.ndarray:
        """Return the connected component of each chain, numbered in the order of their first chains."""
        parent = list(range(self.num_chains))

        def root(chain: int) -> int:
            while parent[chain] != chain:
                parent[chain] = parent[parent[chain]]
                chain = parent[chain]
            return chain

        for query, target in zip(
            self.query[is_joined].tolist(), self.target[is_joined].tolist(), strict=True
        ):
            first, second = sorted((root(query), root(target)))
            parent[second] = first
        # the root of a component is its first chain
        roots = np.array([root(chain) for chain in range(self.num_chains)])
        return np.unique(roots, return_inverse=True)[1]


def choose_held_out(hits: ChainHits, share: float, seed: int) -> dict[str, list[int]]:
    """Choose the chains to hold out, given the hits of all chains among all.

    The same arguments give the same chains. Set A has one chain of each of `share` of the homology groups.
    Their other chains are in X, so that no training chain is related to A. Set B has as many chains of other
    groups, if there are enough: those with a relative whose hit covers at least 70 % of them with an identity
    under 40 %. Relatives of B with a higher identity are in X. At least one group is not in A.

    Returns:
        Indices of the chains in the sets A, B and X, in ascending order.
    """
    groups = hits.groups()
    num_groups = int(groups.max()) + 1
    count = min(max(1, round(share * num_groups)), num_groups - 1) if share else 0
    random = np.random.default_rng(seed)
    order = random.permutation(num_groups)
    members = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])
    sets: dict[str, list[int]] = {"A": [], "B": [], "X": []}
    for group in order[:count]:
        chosen = int(random.choice(members[group]))
        sets["A"].append(chosen)
        sets["X"] += [chain for chain in members[group].tolist() if chain != chosen]
    is_template = (hits.evalue < MAX_EVALUE) & (hits.query_coverage >= TEMPLATE_COVERAGE)
    for group in order[count:]:
        if len(sets["B"]) == count:
            break
        for chosen in random.permutation(members[group]).tolist():
            close = _close_relatives(hits, chosen)
            templates = set(hits.target[is_template & (hits.query == chosen)].tolist())
            if templates - close - {chosen}:
                sets["B"].append(chosen)
                sets["X"] += sorted(close)
                break
    return {name: sorted(chains) for name, chains in sets.items()}


def _close_relatives(hits: ChainHits, chain: int) -> set[int]:
    """Return the other chains with a hit of a chain, in either direction, above the identity of set B."""
    is_close = hits.is_related & (hits.identity >= TEMPLATE_IDENTITY)
    found = np.concatenate(
        [hits.target[is_close & (hits.query == chain)], hits.query[is_close & (hits.target == chain)]]
    )
    return set(found.tolist()) - {chain}
