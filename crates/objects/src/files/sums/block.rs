//! The steps of MD5 for one body, in an order that suits the processor.
//!
//! Every step depends on the previous one, so the number of instructions on the path between them counts. The compiler
//! does not know that and would order the additions differently, a fifth slower.
#![allow(unsafe_code, reason = "an empty line of assembly is the only thing that the compiler does not sort across")]

/// The integer part of 2^32 × |sin(step + 1)|, for every step.
pub(super) const SINES: [u32; 64] = [
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501, 0x698098d8,
    0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821, 0xf61e2562, 0xc040b340,
    0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8, 0x21e1cde6, 0xc33707d6, 0xf4d50d87,
    0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a, 0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c,
    0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70, 0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039,
    0xe6db99e5, 0x1fa27cf8, 0xc4ac5665, 0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92,
    0xffeff47d, 0x85845dd1, 0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb,
    0xeb86d391,
];

/// The four rounds of sixteen steps. `$step` takes the state, the words, the number of the step, the mixing function,
/// the order of the words as `times` and `plus`, and the rotation.
macro_rules! rounds {
    ($step:ident $state:ident $words:ident) => {
        rounds!(@sixteen $step $state $words 0 first (1 0) (7 12 17 22));
        rounds!(@sixteen $step $state $words 16 second (5 1) (5 9 14 20));
        rounds!(@sixteen $step $state $words 32 third (3 5) (4 11 16 23));
        rounds!(@sixteen $step $state $words 48 fourth (7 0) (6 10 15 21));
    };
    (@sixteen $step:ident $state:ident $words:ident $first:literal $mix:ident $order:tt $turns:tt) => {
        rounds!(@four $step $state $words ($first) $mix $order $turns);
        rounds!(@four $step $state $words ($first + 4) $mix $order $turns);
        rounds!(@four $step $state $words ($first + 8) $mix $order $turns);
        rounds!(@four $step $state $words ($first + 12) $mix $order $turns);
    };
    // The rotations repeat every four steps.
    (@four $step:ident $state:ident $words:ident $at:tt $mix:ident $order:tt ($one:tt $two:tt $three:tt $four:tt)) => {
        $step!($state $words $at $mix $order $one);
        $step!($state $words ($at + 1) $mix $order $two);
        $step!($state $words ($at + 2) $mix $order $three);
        $step!($state $words ($at + 3) $mix $order $four);
    };
}
pub(super) use rounds;

macro_rules! step {
    ($state:ident $words:ident $step:tt $mix:ident ($times:literal $plus:literal) $turn:literal) => {
        let [a, b, c, d] = $state;
        let word = u32::from_le_bytes($words[const { ($times * $step + $plus) % 16 }]);
        let early = a.wrapping_add(SINES[const { $step }]).wrapping_add(word);
        $state = [d, $mix(early, b, c, d).rotate_left($turn).wrapping_add(b), b, c];
    };
}

/// Adds blocks to a state.
pub(super) fn compress(total: &mut [u32; 4], blocks: &[[u8; 64]]) {
    for block in blocks {
        let (words, _) = block.as_chunks::<4>();
        let mut state = *total;
        rounds!(step state words);
        for (total, word) in total.iter_mut().zip(state) {
            *total = total.wrapping_add(word);
        }
    }
}

// In each of these, `b` is the result of the previous step; `early` and the held values can be ready before it.

#[inline(always)]
fn first(early: u32, b: u32, c: u32, d: u32) -> u32 {
    hold(early).wrapping_add(d ^ (b & hold(c ^ d)))
}

#[inline(always)]
fn second(early: u32, b: u32, c: u32, d: u32) -> u32 {
    // The two halves have no bit in common, so they can be added instead of combined with or.
    hold(early.wrapping_add(c & !d)).wrapping_add(b & d)
}

#[inline(always)]
fn third(early: u32, b: u32, c: u32, d: u32) -> u32 {
    hold(early).wrapping_add(b ^ hold(c ^ d))
}

#[inline(always)]
fn fourth(early: u32, b: u32, c: u32, d: u32) -> u32 {
    hold(early).wrapping_add(c ^ (b | hold(!d)))
}

/// Returns the same number, which the compiler must compute before it continues.
#[inline(always)]
fn hold(number: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut number = number;
        // SAFETY: it is a comment that names a register: nothing is run, and nothing but the register is used.
        unsafe {
            std::arch::asm!("/* {0:e} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags));
        }
        number
    }
    #[cfg(not(target_arch = "x86_64"))]
    number
}
