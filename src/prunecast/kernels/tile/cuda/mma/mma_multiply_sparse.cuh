// 2:4 sparse weights: reads of operand fragments from a pipeline stage, and sparse products.
//
// Contract: as `mma_multiply.cuh`, which includes this. A step is divided into turns of 16 tokens. Each turn reads the
// tokens of the next turn, and after the last products with 16 rows of weights the next weights for these rows, so that
// one set of weights and two sets of tokens are sufficient. Copies are issued between turns, before the last one. With
// PIPELINED the last turn of a step reads from the next slot, after the barrier.
#pragma once

constexpr int TURNS = DEPTHS * N16;
constexpr int FIRST_COPY_TURN = PIPELINED || M16 == 4 ? 1 : 0;  // the other order spills with 128 registers
static_assert(TURNS % 2 == 0, "the sets of tokens take turns");

struct TurnTokens {  // 32 columns x 16 tokens
  Tokens half[2];
};

struct Reader {
  u32 weights_at, places_at, tokens_at;  // of this lane in the first stage

  __device__ __forceinline__ Reader(u32 base, const Place& me) {
    weights_at = base + me.row / 16 * 512 + me.lane * 16;
    places_at = base + PLACES_AT + me.row / 16 * PLACES_M16_BYTES;
    places_at += (me.lane / 4 * 2 * DEPTHS + me.lane % (2 * DEPTHS)) * 4;
    tokens_at = base + WEIGHT_BYTES + me.lane * ROW_BYTES + (me.token / 8 ^ me.lane % 8) * 16;
  }

  __device__ __forceinline__ void weights(Weights& w, int slot, int depth, int m) const {
    read(w, weights_at + slot * STAGE_BYTES + depth * WEIGHT_DEPTH_BYTES + m * 512);
  }

  __device__ __forceinline__ u32 places(int slot, int m) const {
    return load_shared_4(places_at + slot * STAGE_BYTES + m * PLACES_M16_BYTES);
  }

  // A part begins at a multiple of 4 chunks (8 with eight chunks), so the swizzled address of chunk n is `xor n * 16`.
  __device__ __forceinline__ void tokens(TurnTokens& t, int slot, int turn) const {
    static_assert(PART_N % 64 == 0 || PART_N == 32);
    const int first = turn % N16 * 2;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const u32 from = tokens_at + slot * STAGE_BYTES ^ (first + n) * 16;
      read(t.half[n], from + turn / N16 * 32 * ROW_BYTES);
    }
  }
};

struct Multiplier {
  Weights weights[M16];
  u32 places[M16];
  TurnTokens tokens[2];

  __device__ __forceinline__ void start(const Reader& reader) {
#if PIPELINED
    wait_step();
    first(reader, 0);
#endif
  }

  __device__ __forceinline__ void step(Sums& sums, const Reader& reader, Fetcher& fetcher, int i, int slot) {
#if !PIPELINED
    wait_step();
    first(reader, slot);
#endif
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
      const bool last = turn + 1 == TURNS;
      if (!last) reader.tokens(tokens[(turn + 1) % 2], slot, turn + 1);
#pragma unroll
      for (int piece = 0; piece < PIECES; ++piece) {
        const int wanted = FIRST_COPY_TURN + piece;
        if (turn == (wanted < TURNS - 1 ? wanted : TURNS - 2)) fetcher.issue_piece(i, before(slot), piece);
      }
      if (last && PIPELINED) {
        wait_step();
        reader.tokens(tokens[0], after(slot), 0);
      }
#pragma unroll
      for (int m = 0; m < M16; ++m) {
        multiply(sums, turn, m);
        if (!last && (turn + 1) % N16 == 0) reader.weights(weights[m], slot, (turn + 1) / N16, m);
        if (last && PIPELINED) first(reader, after(slot), m);
      }
    }
  }

 private:
  __device__ __forceinline__ void first(const Reader& reader, int slot, int m) {
    reader.weights(weights[m], slot, 0, m);
    places[m] = reader.places(slot, m);
  }

  __device__ __forceinline__ void first(const Reader& reader, int slot) {
    reader.tokens(tokens[0], slot, 0);
#pragma unroll
    for (int m = 0; m < M16; ++m) first(reader, slot, m);
  }

  // Lanes 0 and 1 of a quad hold the 2:4 metadata of the first 32 columns of a step, lanes 2 and 3 of the second 32.
  __device__ __forceinline__ void multiply(Sums& sums, int turn, int m) const {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float(&s)[4] = sums[m][turn % N16 * 2 + n];
      const Tokens& t = tokens[turn % 2].half[n];
      if (turn < N16) {
        multiply_sparse<0>(s, weights[m], t, places[m]);
      } else {
        multiply_sparse<1>(s, weights[m], t, places[m]);
      }
    }
  }
};
