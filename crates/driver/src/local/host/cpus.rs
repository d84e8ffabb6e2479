//! The CPUs that an instance runs on: as many as its share needs, so that programs see the right number, and the least
//! loaded ones.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity};

/// The CPUs that this process may use, and that instances may get.
pub(in crate::local) fn available_cpus() -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    let all = u32::try_from(CpuSet::MAX_CPU).unwrap_or(u32::MAX);
    Ok((0..all).filter(|cpu| set.is_set(*cpu as usize)).collect())
}

/// Chooses CPUs for `cpu_milli`, given the CPUs and shares of other instances.
pub(in crate::local) fn choose_cpus<'a>(
    available: &[u32],
    cpu_milli: u64,
    others: impl Iterator<Item = (&'a [u32], u64)>,
) -> Vec<u32> {
    let mut load: Vec<(u64, u32)> = available.iter().map(|cpu| (0, *cpu)).collect();
    for (cpus, milli) in others {
        for (sum, _) in load.iter_mut().filter(|(_, cpu)| cpus.contains(cpu)) {
            *sum += milli / cpus.len() as u64;
        }
    }
    load.sort_unstable();
    let wanted = usize::try_from(cpu_milli.div_ceil(1_000)).unwrap_or(usize::MAX).clamp(1, available.len().max(1));
    let mut chosen: Vec<u32> = load.into_iter().take(wanted).map(|(_, cpu)| cpu).collect();
    chosen.sort_unstable();
    chosen
}

/// Formats a CPU list as the kernel expects it.
pub(in crate::local) fn format_cpu_list(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least loaded CPUs are chosen.
    #[test]
    fn least_loaded_cpus_are_chosen() {
        let no_others = || std::iter::empty::<(&[u32], u64)>();
        assert_eq!(choose_cpus(&[0, 1, 2, 3], 100, no_others()), [0]);
        assert_eq!(choose_cpus(&[0, 1, 2, 3], 1_001, no_others()), [0, 1]);
        assert_eq!(choose_cpus(&[2, 3], 64_000, no_others()), [2, 3], "never more than there are");
        let others = [(&[0, 1][..], 2_000), (&[2][..], 100)];
        assert_eq!(choose_cpus(&[0, 1, 2, 3], 2_000, others.into_iter()), [2, 3]);
    }
}
