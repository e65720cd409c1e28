"""The Gotoh kernels that follow paths back and pack them; generator.py makes the others."""

from numba import cuda, int32

from cuda.alignment.smith_waterman.generator import ENTRY, LETTERS, NIBBLE, STARTS
from cuda.alignment.smith_waterman.signatures import PATH, QUERY, WALK_THREADS


def walk(  # type: ignore[no-untyped-def]
    residues,
    offsets,
    target,
    query,
    queries,
    scores,
    codes,
    directions,
    starts,
    unknown,
    gap_open,
    gap_extend,
    ends,
    runs,
    paths,
):
    """Follow the paths of a batch back from their ends; one block per path.

    All threads together fetch the next cells, along the diagonal or the gap, to hide the memory latency of
    single cells. The first thread then walks as far as these cells reach.

    Args:
        residues: uint8 [bytes], of the database.
        offsets: int64 [targets].
        target: int64 [batch], target indices.
        query: int32 [batch], query indices.
        queries: int32 [QUERY · queries], see sorting.py.
        scores: int16 [query residues · 32], the concatenated profiles.
        codes: uint8 [query residues].
        directions: int32, path bits from the traced kernel.
        starts: int64 [STARTS · batch], as passed to the traced kernel.
        unknown: letter code that never counts as identical.
        gap_open: half-bits.
        gap_extend: half-bits.
        ends: int32 [ENTRY · (batch + 1)], scores ≥ 1.
        runs: int32, written, last run first: length · 4 + operation.
        paths: int32 [PATH · batch + 1], written: a record of AlignmentPaths for each, with target positions
            relative to the first processed residue, and a slot for `pack_runs`; then 0.
    """
    cells = cuda.shared.array(WALK_THREADS, int32)
    gains = cuda.shared.array(WALK_THREADS, int32)
    # query position, target position, and the current move: 0 pairs, 4 insertion, 8 deletion
    state = cuda.shared.array(3, int32)
    thread = cuda.threadIdx.x
    p = cuda.blockIdx.x
    start = offsets[target[p]] + starts[STARTS * p + 3]
    own = QUERY * query[p]
    profile = queries[own]
    lanes = queries[own + 2]
    columns = queries[own + 3]
    base = starts[STARTS * p + 1]
    run_offset = starts[STARTS * p + 2]
    path = PATH * p
    h = ends[ENTRY * p + ENTRY]
    last_i = ends[ENTRY * p + ENTRY + 1]
    last_j = ends[ENTRY * p + ENTRY + 2]
    steps = last_j + lanes
    words = columns // 8
    width = lanes * columns
    identical = 0
    total = 0
    count = 0
    last = -1
    if thread == 0:
        state[0] = last_i
        state[1] = last_j
        state[2] = 0
    while True:
        cuda.syncthreads()
        i = state[0]
        j = state[1]
        follow = state[2]
        if i < 0:
            break
        ahead_i = i if follow == 8 else i - thread
        ahead_j = j if follow == 4 else j - thread
        if ahead_i >= 0 and ahead_j >= 0:
            lane = ahead_i % width // columns
            c = ahead_i % columns
            word = ((ahead_i // width * steps + ahead_j + lane) * words + c // 8) * lanes + lane
            bits = directions[base + word] >> (c % 8 * NIBBLE) & 15
            letter = min(residues[start + ahead_j] & 31, LETTERS - 1)
            if letter == codes[profile + ahead_i] and letter != unknown:
                bits |= 16
            cells[thread] = bits
            gains[thread] = scores[32 * (profile + ahead_i) + letter]
        cuda.syncthreads()
        if thread == 0:
            length = 0
            operation = follow // 4
            if follow == 0:
                while length < WALK_THREADS and h > 0 and cells[length] & 1:
                    h -= gains[length]
                    identical += cells[length] >> 4
                    length += 1
                i -= length
                j -= length
                if length < WALK_THREADS:
                    state[2] = 4 if cells[length] & 2 else 8
            else:
                ending = 0
                while length < WALK_THREADS and ending == 0:
                    ending = cells[length] & follow
                    length += 1
                h += length * gap_extend
                if follow == 4:
                    i -= length
                else:
                    j -= length
                if ending:
                    h += gap_open - gap_extend
                    state[2] = 0
            total += length
            if length > 0:
                if operation == last:
                    runs[run_offset + count - 1] += 4 * length
                else:
                    runs[run_offset + count] = 4 * length + operation
                    count += 1
                    last = operation
            # the positions matter only for a walk that started from an invalid end
            if h <= 0 or i < 0 or j < 0:
                paths[path] = ends[ENTRY * p + ENTRY]
                paths[path + 1] = i + 1
                paths[path + 2] = last_i
                paths[path + 3] = j + 1
                paths[path + 4] = last_j
                paths[path + 5] = identical
                paths[path + 6] = total
                paths[path + 7] = count
                i = -1
            state[0] = i
            state[1] = j
    if thread == 0 and p == 0:
        paths[PATH * query.shape[0]] = 0


def pack_runs(starts, runs, paths, packed):  # type: ignore[no-untyped-def]
    """Copy the runs of a batch into one array, each path's first run first; one thread per path.

    Args:
        starts: int64 [STARTS · batch], contains the offset of each path's runs.
        runs: int32, from `walk`.
        paths: int32 [PATH · batch + 1], from `walk`. The offset of each path's runs in `packed` is written to
            its last number, and the total number of runs to the end. The order of paths is arbitrary.
        packed: int32, written.
    """
    p = cuda.grid(1)
    if p < starts.shape[0] // STARTS:
        count = paths[PATH * p + 7]
        offset = cuda.atomic.add(paths, paths.shape[0] - 1, count)
        paths[PATH * p + 8] = offset
        last = starts[STARTS * p + 2] + count - 1
        for k in range(count):
            packed[offset + k] = runs[last - k]
