//! How instances come to an end without being asked to, and how that is told to a person.

/// How an instance came to its end without being asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It needed more memory than it has.
    OutOfMemory,
    /// It ended by itself, or from inside.
    Exit,
    /// The machine went down and came up again, and everything that ran on it ended with it.
    MachineRebooted,
    /// The machine was restarted, and what the instance kept on it is gone.
    DiskMissing,
    /// It is gone, and nothing tells why: killed from outside, or the machine forgot it.
    Lost,
}

impl End {
    /// The name that events carry.
    pub fn name(self) -> &'static str {
        match self {
            End::OutOfMemory => "oom",
            End::Exit => "exit",
            End::MachineRebooted => "machine_rebooted",
            End::DiskMissing => "disk_missing",
            End::Lost => "lost",
        }
    }

    /// What happened, as the rest of a sentence about an instance that had so many bytes of memory.
    pub fn words(self, memory_bytes: u64) -> String {
        match self {
            End::OutOfMemory => {
                format!(
                    "ran out of memory (limit {:.1} GiB) and was stopped",
                    memory_bytes as f64 / (1u64 << 30) as f64
                )
            }
            End::Exit => "ended: its init process was stopped from inside or crashed".to_owned(),
            End::MachineRebooted => "was stopped because the machine was restarted".to_owned(),
            End::DiskMissing => {
                "has lost its disk: since the restart of the machine it is not where it was kept".to_owned()
            }
            End::Lost => {
                "was lost: it was killed from outside or the machine went down, and nothing tells more".to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_the_limit() {
        assert_eq!(End::OutOfMemory.words(3 << 29), "ran out of memory (limit 1.5 GiB) and was stopped");
    }
}
