//! The errors that NVIDIA's kernel driver reports by number and that make a GPU unusable. All other errors are faults
//! of programs, or the GPU reports them in another way.

/// Returns the meaning of an error that only a reset, a repair or a restart of the host repairs; `None` for every other
/// error.
pub fn meaning(code: u32) -> Option<&'static str> {
    let meaning = match code {
        48 => "memory error that could not be corrected",
        62 => "its own controller has stopped",
        64 => "broken memory could not be replaced",
        74 => "NVLink error",
        79 => "fallen off its bus",
        95 => "memory error that reached others than its program",
        110 => "security fault",
        119 | 120 => "its system processor does not answer",
        121 => "error of the link to the processor",
        123 => "its power controller does not answer",
        136 => "the training of its links failed",
        140 => "memory error without recovery",
        143 => "it could not be started",
        154 => "it asks for a recovery",
        _ => return None,
    };
    Some(meaning)
}
