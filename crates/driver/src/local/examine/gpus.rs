//! GPUs: those on the bus, their driver, and the CDI descriptions by which they get into instances.

use std::fs;
use std::path::Path;

use super::read_setting;
use crate::findings::Finding;
use crate::format_short_list;
use crate::gpus::cdi::Directories;
use crate::gpus::{Answer, Nvidia, Probe as _, Reading};

/// The vendor's PCI id, and the class prefixes of display and compute devices.
const VENDOR: &str = "0x10de";
const CLASSES: [&str; 2] = ["0x03", "0x12"];

/// Checks the GPUs as the engine does. `directories` contain the CDI descriptions.
pub fn gpus(directories: &Directories) -> Vec<Finding> {
    let on_bus = count_on_bus(Path::new("/sys/bus/pci/devices"));
    let found = Nvidia::default().read();
    // Without a driver nothing is found, and the list is not known to be complete.
    let readings = (found.is_complete || !found.gpus.is_empty()).then_some(found.gpus);
    let named: Vec<_> = readings.iter().flatten().flat_map(description_names).collect();
    vec![check_driver(on_bus, readings.as_deref()), check_descriptions(&named, directories)]
}

/// Returns the names by which a GPU, or each of its slices, may be described, the preferred one first.
fn description_names(reading: &Reading) -> Vec<Vec<String>> {
    let both = |id: &String, index: &Option<String>| std::iter::once(id.clone()).chain(index.clone()).collect();
    match &reading.slices {
        Some(slices) => slices.iter().map(|slice| both(&slice.id, &slice.index)).collect(),
        None => vec![both(&reading.id, &reading.index)],
    }
}

fn check_driver(on_bus: usize, readings: Option<&[Reading]>) -> Finding {
    const CHECK: &str = "gpus.driver";
    let Some(readings) = readings else {
        return match on_bus {
            0 => Finding::ok(CHECK, "there are no NVIDIA GPUs on this host"),
            count => Finding::warning(
                CHECK,
                format!("{count} NVIDIA GPUs are on the bus, but the library of their driver does not load"),
                "install NVIDIA's driver with its library libnvidia-ml.so.1; `nvidia-smi` must list the \
                 GPUs, or shows why not",
            ),
        };
    };
    let version = readings.iter().find_map(|reading| reading.driver_version.clone());
    let version = version.unwrap_or_else(|| "of an unknown version".to_owned());
    let well = readings.iter().filter(|reading| reading.answer == Answer::Well).count();
    if well < on_bus {
        Finding::warning(
            CHECK,
            format!("{on_bus} NVIDIA GPUs are on the bus, but the driver {version} responds for {well} only"),
            "look for Xid errors in the kernel's log (dmesg); a GPU that fell off its bus needs a reboot",
        )
    } else {
        Finding::ok(CHECK, format!("{well} NVIDIA GPUs by driver {version}"))
    }
}

/// Checks whether every GPU can be given to an instance, with the engine's own code.
fn check_descriptions(gpus: &[Vec<String>], directories: &Directories) -> Finding {
    const CHECK: &str = "gpus.cdi";
    let (mut unnamed, mut unusable) = (Vec::new(), Vec::new());
    for names in gpus {
        match directories.resolve(std::slice::from_ref(names)) {
            Ok((_, missing)) => unnamed.extend(missing),
            Err(why) => unusable.push(why.to_string()),
        }
    }
    let places: Vec<_> = directories.0.iter().map(|place| place.display().to_string()).collect();
    let places = places.join(" and ");
    let todo = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml; gpus.cdi_dirs lists the directories that the \
                engine reads";
    // The same error of several GPUs is format_short_list once.
    unusable.dedup();
    match (gpus.is_empty(), unnamed.is_empty(), unusable.is_empty()) {
        (true, ..) => Finding::ok(CHECK, "no GPU needs a description (CDI)"),
        (_, _, false) => Finding::failure(
            CHECK,
            format!(
                "instances cannot get these GPUs, because their descriptions cannot be used: {}",
                format_short_list(&unusable)
            ),
            todo,
        ),
        (_, false, _) => Finding::failure(
            CHECK,
            format!(
                "instances cannot get these GPUs, because no description in {places} names them: {}",
                format_short_list(&unnamed)
            ),
            todo,
        ),
        (_, true, true) => Finding::ok(CHECK, format!("all {} GPUs and slices are described in {places}", gpus.len())),
    }
}

fn count_on_bus(devices: &Path) -> usize {
    let entries = fs::read_dir(devices).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_gpu = |path: &std::path::PathBuf| {
        read_setting(path.join("vendor")) == VENDOR
            && CLASSES.iter().any(|class| read_setting(path.join("class")).starts_with(class))
    };
    entries.filter(is_gpu).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Level;
    use crate::gpus::Slice;

    #[test]
    fn gpus_without_driver_are_reported() {
        let bus = tempfile::tempdir().unwrap();
        for (name, vendor, class) in
            [("gpu", "0x10de\n", "0x030200\n"), ("sound", "0x10de\n", "0x040300\n"), ("net", "0x8086\n", "0x020000\n")]
        {
            fs::create_dir(bus.path().join(name)).unwrap();
            fs::write(bus.path().join(name).join("vendor"), vendor).unwrap();
            fs::write(bus.path().join(name).join("class"), class).unwrap();
        }
        assert_eq!((count_on_bus(bus.path()), count_on_bus(Path::new("/no such bus"))), (1, 0));
        assert_eq!(check_driver(0, None).level, Level::Ok);
        assert_eq!(check_driver(1, None).level, Level::Warning);
        let gpu = Reading { id: "GPU-1".into(), driver_version: Some("580".into()), ..Reading::default() };
        assert_eq!(check_driver(2, Some(std::slice::from_ref(&gpu))).level, Level::Warning);
        assert_eq!(check_driver(1, Some(std::slice::from_ref(&gpu))).level, Level::Ok);
        assert_eq!(check_driver(1, Some(&[Reading { answer: Answer::Lost, ..gpu }])).level, Level::Warning);
    }

    #[test]
    fn slices_replace_their_gpu() {
        let slice = Slice { id: "MIG-1".into(), index: Some("0:0".into()), ..Slice::default() };
        let whole = Reading { id: "GPU-1".into(), index: Some("0".into()), ..Reading::default() };
        assert_eq!(description_names(&whole), [["GPU-1", "0"]]);
        assert_eq!(description_names(&Reading { slices: Some(vec![slice]), ..whole }), [["MIG-1", "0:0"]]);
    }

    #[test]
    fn descriptions_are_checked_with_engine_code() {
        let place = tempfile::tempdir().unwrap();
        let directories = Directories(vec![place.path().to_owned()]);
        let gpus = [vec!["GPU-1".to_owned(), "0".to_owned()], vec!["GPU-2".to_owned(), "1".to_owned()]];
        let write = |nodes: [&str; 2]| {
            let device = |(index, node): (usize, &&str)| {
                let edits =
                    serde_json::json!({ "deviceNodes": [{ "path": node, "hostPath": node.replace("gpu", "nu") }] });
                serde_json::json!({ "name": index.to_string(), "containerEdits": edits })
            };
            let devices: Vec<_> = nodes.iter().enumerate().map(device).collect();
            let kind = "vendor.example/gpu";
            let text = serde_json::json!({ "cdiVersion": "0.6.0", "kind": kind, "devices": devices });
            fs::write(place.path().join("vendor.json"), text.to_string()).unwrap();
        };
        fs::write(place.path().join("other.yaml"), "this is no description").unwrap();
        let none = check_descriptions(&gpus, &directories);
        assert!(none.level == Level::Failure && none.found.contains("GPU-1"), "any file is not enough: {none:?}");
        write(["/dev/gpull", "/dev/gpull2"]);
        let broken = check_descriptions(&gpus, &directories);
        assert!(broken.level == Level::Failure && broken.found.contains("/dev/null2"), "{broken:?}");
        write(["/dev/gpull", "/dev/gpull"]);
        let good = check_descriptions(&gpus, &directories);
        assert_eq!(good.level, Level::Ok, "{good:?}");
        let more = [&gpus[..], &[vec!["GPU-3".to_owned(), "2".to_owned()]]].concat();
        let unnamed = check_descriptions(&more, &directories);
        assert!(unnamed.found.ends_with("names them: GPU-3"), "{unnamed:?}");
        assert_eq!(check_descriptions(&[], &directories).level, Level::Ok);
    }
}
