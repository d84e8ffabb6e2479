//! MD5 of eight bodies at once, in the lanes of AVX2. Nothing here knows bodies or the source of the blocks.
#![allow(unsafe_code, reason = "that the processor has AVX2 is known at run time only")]

/// The number of bodies hashed at once.
pub(super) const LANES: usize = 8;

/// Proof that this processor has AVX2.
#[derive(Clone, Copy)]
pub(super) struct Lanes(());

impl Lanes {
    /// Returns the lanes, if this processor has AVX2.
    pub(super) fn detect() -> Option<Lanes> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            return Some(Lanes(()));
        }
        None
    }

    /// Adds the blocks of each lane to its state. All lanes have the same number of blocks.
    pub(super) fn compress(self, states: &mut [[u32; 4]; LANES], data: [&[[u8; 64]]; LANES]) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `Lanes` is created only where the processor has AVX2, and the function requires nothing else.
        unsafe {
            avx2::compress(states, data);
        }
        #[cfg(not(target_arch = "x86_64"))]
        for (state, blocks) in states.iter_mut().zip(data) {
            super::block::compress(state, blocks);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::super::block::{SINES, rounds};
    use super::LANES;

    macro_rules! step {
        ($state:ident $words:ident $step:tt $mix:ident ($times:literal $plus:literal) $turn:literal) => {
            let [a, b, c, d] = $state;
            let constant = _mm256_set1_epi32(SINES[const { $step }].cast_signed());
            let word = $words[const { ($times * $step + $plus) % 16 }];
            let sum = _mm256_add_epi32(_mm256_add_epi32(a, _mm256_add_epi32(word, constant)), $mix(b, c, d));
            let turned = _mm256_or_si256(_mm256_slli_epi32::<$turn>(sum), _mm256_srli_epi32::<{ 32 - $turn }>(sum));
            $state = [d, _mm256_add_epi32(b, turned), b, c];
        };
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn compress(states: &mut [[u32; 4]; LANES], data: [&[[u8; 64]]; LANES]) {
        let mut total: [__m256i; 4] = [0, 1, 2, 3].map(|word| {
            let lane = |lane: usize| states[lane][word].cast_signed();
            _mm256_set_epi32(lane(7), lane(6), lane(5), lane(4), lane(3), lane(2), lane(1), lane(0))
        });
        for at in 0..data[0].len() {
            let words = words(data.map(|blocks| &blocks[at]));
            let mut state = total;
            rounds!(step state words);
            for (total, state) in total.iter_mut().zip(state) {
                *total = _mm256_add_epi32(*total, state);
            }
        }
        for (word, lanes) in total.into_iter().enumerate() {
            let pairs = [
                _mm256_extract_epi64::<0>(lanes),
                _mm256_extract_epi64::<1>(lanes),
                _mm256_extract_epi64::<2>(lanes),
                _mm256_extract_epi64::<3>(lanes),
            ];
            for (lane, state) in states.iter_mut().enumerate() {
                state[word] = (pairs[lane / 2].cast_unsigned() >> (lane % 2 * 32)) as u32;
            }
        }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn first(b: __m256i, c: __m256i, d: __m256i) -> __m256i {
        _mm256_xor_si256(d, _mm256_and_si256(b, _mm256_xor_si256(c, d)))
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn second(b: __m256i, c: __m256i, d: __m256i) -> __m256i {
        _mm256_xor_si256(c, _mm256_and_si256(d, _mm256_xor_si256(b, c)))
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn third(b: __m256i, c: __m256i, d: __m256i) -> __m256i {
        _mm256_xor_si256(b, _mm256_xor_si256(c, d))
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn fourth(b: __m256i, c: __m256i, d: __m256i) -> __m256i {
        _mm256_xor_si256(c, _mm256_or_si256(b, _mm256_xor_si256(d, _mm256_set1_epi32(-1))))
    }

    /// Returns the sixteen words of a block, each from all lanes.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn words(blocks: [&[u8; 64]; LANES]) -> [__m256i; 16] {
        let [low, high] = [0, 4].map(|first| {
            transpose(blocks.map(|block| {
                let (quads, _) = block.as_chunks::<8>();
                let quad = |at: usize| i64::from_le_bytes(quads[first + at]);
                _mm256_set_epi64x(quad(3), quad(2), quad(1), quad(0))
            }))
        });
        std::array::from_fn(|word| if word < 8 { low[word] } else { high[word - 8] })
    }

    /// Transposes eight words of eight lanes: rows become columns.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn transpose(rows: [__m256i; 8]) -> [__m256i; 8] {
        let [a, b, c, d, e, f, g, h] = rows;
        let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
        let (ef, gh) = (_mm256_unpacklo_epi32(e, f), _mm256_unpacklo_epi32(g, h));
        let (ab_high, cd_high) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
        let (ef_high, gh_high) = (_mm256_unpackhi_epi32(e, f), _mm256_unpackhi_epi32(g, h));
        let upper = [
            _mm256_unpacklo_epi64(ab, cd),
            _mm256_unpackhi_epi64(ab, cd),
            _mm256_unpacklo_epi64(ab_high, cd_high),
            _mm256_unpackhi_epi64(ab_high, cd_high),
        ];
        let lower = [
            _mm256_unpacklo_epi64(ef, gh),
            _mm256_unpackhi_epi64(ef, gh),
            _mm256_unpacklo_epi64(ef_high, gh_high),
            _mm256_unpackhi_epi64(ef_high, gh_high),
        ];
        std::array::from_fn(|column| match column {
            0..4 => _mm256_permute2x128_si256::<0x20>(upper[column], lower[column]),
            _ => _mm256_permute2x128_si256::<0x31>(upper[column - 4], lower[column - 4]),
        })
    }
}
