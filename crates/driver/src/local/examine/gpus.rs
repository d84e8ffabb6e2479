//! GPUs: those on the bus, the driver that speaks to them, and the descriptions by which they get into instances.

use std::fs;
use std::path::Path;

use nvml_wrapper::Nvml;

use super::setting;
use crate::findings::Finding;

/// Where descriptions of devices for containers are.
const DESCRIPTIONS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// The number of the vendor, and what the class of a display or a compute device begins with.
const VENDOR: &str = "0x10de";
const CLASSES: [&str; 2] = ["0x03", "0x12"];

/// Looks at them.
pub fn gpus() -> Vec<Finding> {
    let on_bus = on_bus(Path::new("/sys/bus/pci/devices"));
    let answered = Nvml::init().and_then(|nvml| Ok((nvml.device_count()?, nvml.sys_driver_version()?)));
    let answered = answered.map_err(|error| error.to_string());
    let found = answered.as_ref().map_or(0, |(count, _)| *count);
    vec![driver(on_bus, answered), descriptions(found, described(&DESCRIPTIONS))]
}

fn driver(on_bus: usize, answered: Result<(u32, String), String>) -> Finding {
    const CHECK: &str = "gpus.driver";
    match (on_bus, answered) {
        (0, Err(_)) => Finding::ok(CHECK, "there are no NVIDIA GPUs on this machine"),
        (count, Err(why)) => Finding::warning(
            CHECK,
            format!("{count} NVIDIA GPUs are on the bus, but their library does not load: {why}"),
            "install NVIDIA's driver with its library libnvidia-ml.so.1; `nvidia-smi` must list the GPUs",
        ),
        (on_bus, Ok((count, version))) if (count as usize) < on_bus => Finding::warning(
            CHECK,
            format!("{on_bus} NVIDIA GPUs are on the bus, but the driver {version} answers for {count} only"),
            "look for Xid errors in the kernel's log (dmesg); a GPU that fell off its bus needs a reboot",
        ),
        (_, Ok((count, version))) => Finding::ok(CHECK, format!("{count} NVIDIA GPUs by driver {version}")),
    }
}

fn descriptions(gpus: u32, files: usize) -> Finding {
    const CHECK: &str = "gpus.cdi";
    match (gpus, files) {
        (0, _) => Finding::ok(CHECK, "no GPU needs a description (CDI)"),
        (_, 0) => Finding::failure(
            CHECK,
            "there are GPUs, but no description of them in /etc/cdi or /var/run/cdi: instances cannot get them",
            "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        ),
        (_, files) => Finding::ok(CHECK, format!("{files} descriptions of devices")),
    }
}

fn on_bus(devices: &Path) -> usize {
    let entries = fs::read_dir(devices).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_gpu = |path: &std::path::PathBuf| {
        setting(path.join("vendor")) == VENDOR
            && CLASSES.iter().any(|class| setting(path.join("class")).starts_with(class))
    };
    entries.filter(is_gpu).count()
}

fn described(directories: &[&str]) -> usize {
    let entries = directories.iter().flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten());
    let is_description = |name: &str| [".json", ".yaml", ".yml"].iter().any(|end| name.ends_with(end));
    entries.filter(|entry| is_description(&entry.file_name().to_string_lossy())).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Level;

    #[test]
    fn gpus_that_nobody_answers_for_are_told() {
        let bus = tempfile::tempdir().unwrap();
        for (name, vendor, class) in
            [("gpu", "0x10de\n", "0x030200\n"), ("sound", "0x10de\n", "0x040300\n"), ("net", "0x8086\n", "0x020000\n")]
        {
            fs::create_dir(bus.path().join(name)).unwrap();
            fs::write(bus.path().join(name).join("vendor"), vendor).unwrap();
            fs::write(bus.path().join(name).join("class"), class).unwrap();
        }
        assert_eq!((on_bus(bus.path()), on_bus(Path::new("/no such bus"))), (1, 0));
        assert_eq!(driver(0, Err("no library".into())).level, Level::Ok);
        assert_eq!(driver(1, Err("no library".into())).level, Level::Warning);
        assert_eq!(driver(2, Ok((1, "580".into()))).level, Level::Warning);
        assert_eq!(driver(1, Ok((1, "580".into()))).level, Level::Ok);
        assert_eq!(descriptions(1, 0).level, Level::Failure);
        fs::write(bus.path().join("nvidia.yaml"), "").unwrap();
        assert_eq!(described(&[bus.path().to_str().unwrap()]), 1);
    }
}
