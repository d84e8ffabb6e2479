//! Why instances end without being asked to, and the texts that tell it.

/// Why an instance ended without being asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It needed more memory than its limit.
    OutOfMemory,
    /// Its init process exited, crashed or was stopped from inside the instance.
    Exit,
    /// The host was restarted, and everything that ran on it ended.
    MachineRebooted,
    /// The host was restarted, and the disk of the instance is gone.
    DiskMissing,
    /// It is gone for an unknown reason: killed from outside, or the host went down.
    Lost,
}

impl End {
    const ALL: [End; 5] = [End::OutOfMemory, End::Exit, End::MachineRebooted, End::DiskMissing, End::Lost];

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

    /// The reverse of [`End::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|end| end.name() == name)
    }

    /// Describes what happened, as the rest of a sentence about an instance with this memory limit.
    pub fn describe(self, memory_bytes: u64) -> String {
        match self {
            End::OutOfMemory => {
                format!(
                    "ran out of memory (limit {:.1} GiB) and was stopped",
                    memory_bytes as f64 / (1u64 << 30) as f64
                )
            }
            End::Exit => "ended: its init process was stopped from inside or crashed".to_owned(),
            End::MachineRebooted => "was stopped because the host was restarted".to_owned(),
            End::DiskMissing => "has lost its disk: it is missing since the host was restarted".to_owned(),
            End::Lost => "was lost for an unknown reason: it was killed from outside, or the host went down".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_names_memory_limit() {
        assert_eq!(End::OutOfMemory.describe(3 << 29), "ran out of memory (limit 1.5 GiB) and was stopped");
    }
}
