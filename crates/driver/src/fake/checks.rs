//! The specs that the fake refuses: a changed cluster or node number, and resources that are taken or do not exist.

use tarn_model::capacity::Inventory;

use super::world::{Instance, World};
use crate::{Error, InstanceSpec};

/// An instance stays in its cluster and keeps its node number.
pub(super) fn check_same_place(spec: &InstanceSpec, old: &Instance) -> Result<(), Error> {
    refuse_if(spec.cluster != old.cluster || spec.node != old.node, || {
        format!("{} is node {} of {}, not node {} of {}", spec.id, old.node, old.cluster, spec.node, spec.cluster)
    })
}

/// A running instance keeps its resources until it is restarted.
pub(super) fn check_same_resources(spec: &InstanceSpec, old: &Instance) -> Result<(), Error> {
    let wanted = (&spec.gpus, spec.shape.cpu_milli, spec.shape.memory_bytes);
    let has = (&old.gpus, old.cpu_milli, old.memory_bytes);
    refuse_if(spec.boot == old.boot && wanted != has, || {
        format!("{} runs with (GPUs, milli-CPUs, bytes) {has:?} and cannot get {wanted:?} without a restart", spec.id)
    })
}

/// Every volume to be mounted has to exist and to be usable.
pub(super) fn check_volumes(world: &World, spec: &InstanceSpec) -> Result<(), Error> {
    spec.volumes.iter().try_for_each(|volume| world.must_be_usable(volume))
}

/// The host must have what the instance takes, besides what the other instances hold.
pub(super) fn check_room(world: &World, spec: &InstanceSpec, inventory: &Inventory) -> Result<(), Error> {
    let others = || world.instances.iter().filter(|(id, _)| **id != spec.id);
    refuse_if(spec.gpus.len() != spec.shape.gpus as usize, || {
        format!("{} takes {} GPUs and was given {}", spec.id, spec.shape.gpus, spec.gpus.len())
    })?;
    for (at, gpu) in spec.gpus.iter().enumerate() {
        let known = inventory.gpus.iter().find(|known| known.id == *gpu);
        let Some(known) = known else {
            return Err(Error::Permanent(format!("there is no GPU {gpu} for {}", spec.id)));
        };
        refuse_if(Some(&known.model) != spec.shape.gpu_model.as_ref(), || {
            format!("GPU {gpu} is a {} and {} takes {:?}", known.model, spec.id, spec.shape.gpu_model)
        })?;
        refuse_if(spec.gpus[..at].contains(gpu), || format!("GPU {gpu} was given to {} twice", spec.id))?;
        let owner = others().find(|(_, other)| other.gpus.contains(gpu));
        if let Some((owner, _)) = owner {
            return Err(Error::Permanent(format!("GPU {gpu} belongs to {owner} and cannot go to {}", spec.id)));
        }
    }
    let cpu_milli = others().map(|(_, other)| other.cpu_milli).fold(spec.shape.cpu_milli, u64::saturating_add);
    refuse_if(cpu_milli > inventory.cpu_milli, || {
        format!("{} would make {cpu_milli} milli-CPUs of {} used", spec.id, inventory.cpu_milli)
    })?;
    let memory_bytes = others().map(|(_, other)| other.memory_bytes).fold(spec.shape.memory_bytes, u64::saturating_add);
    refuse_if(memory_bytes > inventory.memory_bytes, || {
        format!("{} would make {memory_bytes} bytes of memory of {} used", spec.id, inventory.memory_bytes)
    })
}

/// Derives the address from the cluster and the node number: `10.64.0.0` to `10.127.255.255`, a /16 per cluster. Two
/// clusters may share a /16; they do not see each other.
pub(super) fn choose_address(world: &World, spec: &InstanceSpec) -> Result<String, Error> {
    let host = spec.node.checked_add(1).and_then(|host| u16::try_from(host).ok()).filter(|host| *host < u16::MAX);
    let Some(host) = host else {
        return Err(Error::Permanent(format!("a cluster has no address for node {}", spec.node)));
    };
    let peers = world.instances.iter().filter(|(id, _)| **id != spec.id);
    let mut twins = peers.filter(|(_, other)| other.cluster == spec.cluster && other.node == spec.node);
    if let Some((twin, _)) = twins.next() {
        return Err(Error::Permanent(format!("node {} of {} is {twin}, not {}", spec.node, spec.cluster, spec.id)));
    }
    let network =
        spec.cluster.as_str().bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 64;
    let [high, low] = host.to_be_bytes();
    Ok(format!("10.{}.{high}.{low}", 64 + network))
}

fn refuse_if(wrong: bool, why: impl FnOnce() -> String) -> Result<(), Error> {
    if wrong { Err(Error::Permanent(why())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_model::capacity::{Gpu, Shape};

    fn test_inventory() -> Inventory {
        let gpu = |id: &str, model: &str| Gpu { id: id.into(), model: model.into(), simulated: true };
        let gpus = vec![gpu("a", "H100"), gpu("b", "H100"), gpu("c", "L40S")];
        Inventory { cpu_milli: 1000, memory_bytes: 1000, gpus, storage_bytes: 0 }
    }

    fn spec(number: u32, gpus: &[&str]) -> InstanceSpec {
        InstanceSpec {
            id: format!("i-{number:012}").parse().unwrap(),
            cluster: "c-000000000001".parse().unwrap(),
            node: number,
            name: "node".into(),
            shape: Shape { cpu_milli: 400, memory_bytes: 400, gpus: gpus.len() as u32, gpu_model: Some("H100".into()) },
            gpus: gpus.iter().map(|gpu| gpu.to_string()).collect(),
            container: None,
            boot: 1,
            volumes: vec![],
            share: "share".into(),
        }
    }

    #[test]
    fn wrong_placements_are_refused() {
        let mut world = World::default();
        world.ensure_instance(&spec(0, &["a"]), &test_inventory()).unwrap();
        let mut too_few = spec(1, &["b"]);
        too_few.shape.gpus = 2;
        let mut cpu = spec(1, &[]);
        cpu.shape.cpu_milli = 601;
        let mut memory = spec(1, &[]);
        memory.shape.memory_bytes = 601;
        let mut lost = spec(1, &[]);
        lost.volumes.push("s-000000000001".parse().unwrap());
        let twin = InstanceSpec { node: 0, ..spec(1, &[]) };
        let far = InstanceSpec { node: u32::MAX, ..spec(1, &[]) };
        let moved = InstanceSpec { node: 7, ..spec(0, &["a"]) };
        let cases = [
            (spec(1, &["a"]), "GPU a belongs to i-000000000000"),
            (spec(1, &["b", "b"]), "twice"),
            (spec(1, &["c"]), "is a L40S"),
            (spec(1, &["z"]), "there is no GPU z"),
            (too_few, "takes 2 GPUs and was given 1"),
            (cpu, "1001 milli-CPUs of 1000"),
            (memory, "1001 bytes of memory of 1000"),
            (lost, "there is no volume s-000000000001"),
            (twin, "is i-000000000000, not i-000000000001"),
            (far, "no address"),
            (moved, "is node 0 of"),
            (spec(0, &["b"]), "without a restart"),
        ];
        let before = world.clone();
        for (spec, why) in cases {
            let error = world.ensure_instance(&spec, &test_inventory()).unwrap_err();
            assert!(matches!(&error, Error::Permanent(text) if text.contains(why)), "{why}: {error}");
        }
        assert_eq!(world, before);
    }

    #[test]
    fn restart_applies_new_resources() {
        let mut world = World::default();
        world.ensure_instance(&spec(0, &["a"]), &test_inventory()).unwrap();
        world.ensure_instance(&InstanceSpec { boot: 2, ..spec(0, &["b"]) }, &test_inventory()).unwrap();
        world.ensure_instance(&spec(1, &["a"]), &test_inventory()).unwrap();
        assert_eq!(world.instances[&spec(0, &[]).id].gpus, ["b"]);
    }

    #[test]
    fn addresses_in_a_cluster_differ() {
        let all = (0..65_534).map(|node| choose_address(&World::default(), &spec(node, &[])).unwrap());
        assert_eq!(all.collect::<std::collections::BTreeSet<_>>().len(), 65_534);
    }
}
