//! The limits of a job file.

/// Bytes of the whole file.
pub(super) const TEXT_BYTES: usize = 256 << 10;

/// Commands.
pub(super) const COMMANDS: usize = 1000;

/// Bytes of one command.
pub(super) const COMMAND_BYTES: usize = 100 << 10;

/// Patterns of a kind.
pub(super) const PATTERNS: usize = 1000;

/// Characters of one pattern.
pub(super) const PATTERN_CHARACTERS: usize = 1024;

/// Bytes of all patterns of a kind together. The engine matches `ignore` itself, and the work grows with this number.
pub(super) const PATTERNS_BYTES: usize = 32 << 10;

/// Stars of one pattern; `**` is one. Each multiplies the ways in which a name may match.
pub(super) const PATTERN_STARS: usize = 16;

/// Wildcards of one pattern: stars, `?`, classes such as `[ab]`, and alternatives such as `{a,b}`.
pub(super) const PATTERN_WILDCARDS: usize = 64;

/// Wildcards of all patterns of a kind together.
pub(super) const PATTERNS_WILDCARDS: usize = 4000;

/// Environment variables.
pub(super) const VARIABLES: usize = 256;

/// The variables that a job cannot set: they identify the user.
pub(super) const RESERVED_VARIABLES: [&str; 4] = ["HOME", "USER", "LOGNAME", "SHELL"];

/// Bytes of the name of a variable.
pub(super) const VARIABLE_NAME_BYTES: usize = 255;

/// Bytes of one value.
pub(super) const VALUE_BYTES: usize = 64 << 10;

/// Bytes of all values together.
pub(super) const VALUES_BYTES: usize = 512 << 10;

/// Seconds of a timeout: a year.
pub(super) const TIMEOUT_SECONDS: u64 = 365 * 86_400;

/// Retries.
pub(super) const RETRIES: u32 = 100;
