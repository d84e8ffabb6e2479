use super::*;

const QUIET: Duration = Duration::from_secs(30);

fn at(seconds: i64) -> Time {
    Time::from_micros(seconds * 1_000_000)
}

fn xid(code: u32, seconds: i64) -> Fault {
    Fault::Xid { code, at: at(seconds) }
}

fn look(health: Health, faults: &[Fault], seconds: i64) -> Health {
    health.seen(faults, None, at(seconds), QUIET)
}

fn seen(faults: Vec<Fault>) -> ObservedGpu {
    let gpu = Gpu { id: "gpu-0".into(), model: "H100".into(), simulated: true };
    ObservedGpu { faults, ..ObservedGpu::plain(gpu) }
}

#[test]
fn passing_fault_recovers_after_quiet() {
    let passing = [
        Fault::Silent,
        Fault::UncorrectedErrors(2),
        Fault::RemapFailed,
        Fault::RemapPending,
        Fault::RetirementPending,
        Fault::Throttled("too hot"),
        Fault::Foreign(1),
        Fault::Undivided,
        Fault::Undescribed,
        Fault::Unusable,
    ];
    for fault in passing {
        let bad = look(Health::Good, std::slice::from_ref(&fault), 10);
        assert_eq!(bad, Health::Bad { reason: fault.to_string(), since: at(10) });
        let bad = look(bad, std::slice::from_ref(&fault), 20);
        assert_eq!(bad.since(), Some(at(10)), "since when it is bad does not move");
        let recovering = look(bad, &[], 30);
        assert_eq!(recovering, Health::Recovering { reason: fault.to_string(), since: at(30) });
        let recovering = look(recovering, &[], 59);
        assert_eq!(recovering.name(), "RECOVERING", "{fault}");
        let again = look(recovering.clone(), &[fault], 59);
        assert_eq!((again.name(), again.since()), ("BAD", Some(at(59))), "the quiet time starts again");
        assert_eq!(look(recovering, &[], 60), Health::Good);
    }
}

#[test]
fn fatal_fault_waits_for_operator() {
    for fault in [Fault::Lost, xid(79, 5)] {
        let fatal = look(Health::Good, &[Fault::Foreign(1), fault.clone()], 10);
        assert_eq!(fatal, Health::Fatal { reason: fault.to_string(), since: at(10) });
        let fatal = look(fatal, &[], 10_000);
        assert_eq!(fatal.name(), "FATAL");
        let cleared = fatal.clear(at(20_000)).unwrap();
        assert_eq!(cleared, Health::Recovering { reason: fault.to_string(), since: at(20_000) }, "not offered yet");
        assert_eq!(look(cleared.clone(), &[Fault::Lost], 20_001).name(), "FATAL", "it is still so");
        assert_eq!(look(cleared, &[], 20_030), Health::Good);
    }
    for health in [Health::Good, look(Health::Good, &[Fault::Silent], 1)] {
        assert!(matches!(health.clear(at(2)), Err(Refused::GpuNotFatal { .. })));
    }
}

#[test]
fn xid_before_clear_is_ignored() {
    let faults = [xid(79, 100)];
    assert_eq!(Health::Good.seen(&faults, Some(at(100)), at(200), QUIET), Health::Good);
    assert_eq!(Health::Good.seen(&faults, Some(at(99)), at(200), QUIET).name(), "FATAL");
}

#[test]
fn withheld_names_every_reason() {
    let mut known = GpuRecord::new(&seen(vec![]));
    assert_eq!(known.withheld(), None);
    known.drain = Some(Drain { reason: Some("a new fan".into()), since: at(0) });
    assert_eq!(known.withheld().unwrap(), "drained by an operator at 1970-01-01T00:00:00Z: a new fan");
    let known = known.seen(&seen(vec![xid(79, 1)]), at(2), QUIET);
    let reasons = known.withheld().unwrap();
    assert!(reasons.starts_with("Xid 79 (fallen off its bus) at 1970-01-01T00:00:01Z; an operator"), "{reasons}");
    assert!(reasons.ends_with("drained by an operator at 1970-01-01T00:00:00Z: a new fan"), "{reasons}");
}

#[test]
fn lost_gpu_keeps_its_facts() {
    let whole = ObservedGpu { facts: Facts { memory_bytes: 80 << 30, ..Facts::default() }, ..seen(vec![]) };
    let known = GpuRecord::new(&whole).seen(&seen(vec![Fault::Lost]), at(1), QUIET);
    assert_eq!(known.facts.memory_bytes, 80 << 30);
}

proptest::proptest! {
    /// A GPU is offered only if it has no fault now and never had a fatal one.
    #[test]
    fn offered_gpu_is_healthy(looks: Vec<(bool, bool, u8)>) {
        let (mut known, mut now, mut fatal) = (GpuRecord::new(&seen(vec![])), 0, false);
        for (is_bad, is_fatal, pause) in looks {
            now += i64::from(pause);
            let mut faults = Vec::new();
            faults.extend(is_bad.then_some(Fault::Throttled("too hot")));
            faults.extend(is_fatal.then_some(Fault::Lost));
            fatal |= is_fatal;
            known = known.seen(&seen(faults), at(now), QUIET);
            proptest::prop_assert!(known.withheld().is_some() || !(fatal || is_bad));
        }
        for second in [1, 31] {
            known = known.seen(&seen(vec![]), at(now + second), QUIET);
        }
        proptest::prop_assert_eq!(known.withheld().is_some(), fatal);
    }
}
