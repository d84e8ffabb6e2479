//! The network of the host, as far as it can interfere with instances: settings, foreign rules, foreign addresses.

mod nft_rules;

use std::path::Path;

use serde_json::Value;

use super::{AS_ROOT, read_setting, snapshot, tools};
use crate::findings::Finding;
use crate::local::installation;
use crate::local::network::survey;
use nft_rules::{Obstacle, iptables_remedy};

/// Where the kernel lists the tables of the legacy iptables.
const OLDER: &str = "/proc/net/ip_tables_names";

/// Checks foreign firewall rules and settings of the kernel. `is_open` tells whether clients connect from other hosts.
pub async fn firewall(data: &Path, is_open: bool) -> Vec<Finding> {
    let mut findings = vec![check_forwarding(&read_setting("/proc/sys/net/ipv4/ip_forward"))];
    findings.push(check_bridge_filter(&read_setting("/proc/sys/net/bridge/bridge-nf-call-iptables")));
    findings.push(check_foreign_rules(data, is_open).await);
    findings
}

/// Checks whether other programs use the addresses of instances.
pub async fn addresses(data: &Path) -> Finding {
    const CHECK: &str = "network.addresses";
    let installation = match installation::existing_id(data) {
        Ok(installation) => installation,
        Err(error) => {
            let found = format!("the addresses of instances cannot be read at {}: {error}", data.display());
            return Finding::skipped(CHECK, found, AS_ROOT);
        }
    };
    let remembered = snapshot::remembered_prefix(data);
    match survey::survey_addresses(installation.as_deref(), remembered).await {
        Err(error) => Finding::skipped(CHECK, error.to_string(), AS_ROOT),
        Ok(survey::AddressSurvey { free: (0, all), prefix: None, .. }) => Finding::failure(
            CHECK,
            format!(
                "routes of this host cover all {all} ranges that instances could have (10.64.0.0/10, 172.16.0.0/12)"
            ),
            "free one /16 of them: `ip route` shows what covers them",
        ),
        Ok(found) => {
            let (free, all) = found.free;
            let prefix = found.prefix.map(|prefix| prefix.to_string()).unwrap_or_default();
            if found.overlaps.is_empty() {
                let range = match (remembered, installation) {
                    (Some(_), _) => format!("instances have {prefix}"),
                    (None, Some(_)) => format!("the first instance gets an address of {prefix}"),
                    // They follow from an id that does not exist yet.
                    (None, None) => "the addresses of instances are chosen when the engine first starts".to_owned(),
                };
                Finding::ok(CHECK, format!("{range}; {free} of {all} ranges are free"))
            } else {
                Finding::warning(
                    CHECK,
                    format!(
                        "instances have {prefix}, and other programs use {} of it: they cannot reach each other",
                        found.overlaps.join(", ")
                    ),
                    "destroy all clusters, so that the next one gets a free range; or move the other programs to \
                     another network",
                )
            }
        }
    }
}

fn check_forwarding(value: &str) -> Finding {
    const CHECK: &str = "network.forwarding";
    match value {
        "0" => Finding::note(
            CHECK,
            "this host does not forward packets; the engine enables it with the first cluster, and leaves it on",
            "",
        ),
        "" => Finding::skipped(CHECK, "the kernel does not report whether it forwards packets", ""),
        _ => Finding::ok(CHECK, "this host forwards packets"),
    }
}

fn check_bridge_filter(value: &str) -> Finding {
    const CHECK: &str = "network.bridge_filter";
    match value {
        "1" => Finding::note(
            CHECK,
            "packets within a bridge go through the firewall as well: foreign rules apply to the traffic between \
             nodes of a cluster",
            "nothing, if network.firewall is ok; otherwise sysctl -w net.bridge.bridge-nf-call-iptables=0",
        ),
        _ => Finding::ok(CHECK, "packets within a bridge do not go through the firewall"),
    }
}

async fn check_foreign_rules(data: &Path, is_open: bool) -> Finding {
    const CHECK: &str = "network.firewall";
    if !super::is_root() {
        return Finding::skipped(CHECK, "only root sees the rules of the firewall", AS_ROOT);
    }
    let Some(nft) = tools::find_program("nft") else {
        return Finding::skipped(CHECK, "the rules cannot be seen without nft", "install the package nftables");
    };
    let listed = tools::run_program(&nft, &["-j", "list", "ruleset"]).await;
    let ruleset: Value = match listed.map(|text| serde_json::from_str(&text)) {
        Ok(Ok(ruleset)) => ruleset,
        Ok(Err(error)) => return Finding::skipped(CHECK, format!("the output of nft cannot be parsed: {error}"), ""),
        Err(why) => return Finding::skipped(CHECK, format!("nft does not list the rules: {why}"), "see tools.nft"),
    };
    // Before the first start there is no id yet; the rules are the same with any.
    let installation = snapshot::installation_id(data);
    let ours = format!("t{}", installation.as_deref().unwrap_or("<installation>"));
    let uplink = default_uplink(&read_setting("/proc/net/route")).unwrap_or_else(|| "<uplink>".to_owned());
    let mut found = nft_rules::find_obstacles(&ruleset, &ours, &uplink);
    if !read_setting(OLDER).is_empty()
        && let Some(save) = tools::find_program("iptables-legacy-save")
        && let Ok(saved) = tools::run_program(&save, &[]).await
    {
        found.extend(find_legacy_obstacle(&saved, &ours, &uplink));
    }
    if !found.is_empty() {
        let what: Vec<_> = found.iter().map(|one| format!("{} ({})", one.place, one.how)).collect();
        let todo: Vec<_> = found.iter().map(|one| one.remedy.as_str()).collect();
        let unknown = if installation.is_some() { "" } else { "; once the engine has run, this shows the interfaces" };
        let found = format!("foreign rules drop what instances send to other hosts: {}{unknown}", what.join(", "));
        return Finding::failure(CHECK, found, todo.join("; "));
    }
    if is_open && nft_rules::closes_host(&ruleset) {
        Finding::note(
            CHECK,
            "no foreign rule drops what instances send, but the host accepts only what its rules allow",
            "check that they allow the ports of the API, of SSH and of S3 for your clients",
        )
    } else {
        Finding::ok(CHECK, "no foreign rule drops what instances send")
    }
}

/// Returns the interface of the preferred default route.
fn default_uplink(routes: &str) -> Option<String> {
    let defaults = routes.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, "00000000", _, _, _, _, metric, "00000000", ..] = fields[..] else { return None };
        Some((metric.parse::<u64>().ok()?, name.to_owned()))
    });
    defaults.min().map(|(_, name)| name)
}

/// Returns the obstacle to forwarded packets in the rules of the legacy iptables, which `nft` does not show, from the
/// output of `iptables-legacy-save`.
fn find_legacy_obstacle(saved: &str, ours: &str, uplink: &str) -> Option<Obstacle> {
    let filter: Vec<&str> = saved
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != "*filter")
        .skip(1)
        .take_while(|line| *line != "COMMIT")
        .collect();
    let has = |chain: &str| filter.iter().any(|line| line.starts_with(&format!(":{chain} ")));
    if !filter.iter().any(|line| line.starts_with(":FORWARD DROP")) {
        return None;
    }
    let lets_pass = |option: &str| {
        filter.iter().any(|line| {
            let mut words = line.split_whitespace();
            let named = words.find(|word| *word == option).and_then(|_| words.next());
            line.ends_with("-j ACCEPT")
                && !line.contains(" ! ")
                && named.is_some_and(|name| is_own_interface(name, ours))
        })
    };
    if lets_pass("-i") && lets_pass("-o") {
        return None;
    }
    let chain = if has("DOCKER-USER") { "DOCKER-USER" } else { "FORWARD" };
    let remedy = iptables_remedy(chain, ours, uplink, has("ufw-user-forward")).replace("iptables ", "iptables-legacy ");
    Some(Obstacle { place: "iptables-legacy filter FORWARD".into(), how: "its policy is drop", remedy })
}

fn is_own_interface(name: &str, ours: &str) -> bool {
    name.strip_suffix('+').map_or(name == ours, |start| ours.starts_with(start) || start.starts_with(ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uplink_is_the_preferred_default_route() {
        let table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
                     wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
                     eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                     docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
        assert_eq!(default_uplink(table).as_deref(), Some("eth0"));
        assert_eq!(default_uplink(""), None);
    }

    #[tokio::test]
    async fn unchosen_addresses_are_not_reported() {
        let data = tempfile::tempdir().unwrap();
        let before = addresses(data.path()).await.found;
        assert!(!before.contains("/16") && before.contains("when the engine first starts"), "{before}");
        std::fs::write(data.path().join("installation"), "zzzzzz").unwrap();
        let after = addresses(data.path()).await.found;
        assert!(after.contains("the first instance gets an address of ") && after.contains("/16"), "{after}");
    }

    #[test]
    fn drop_policy_is_an_obstacle_until_ours_pass() {
        let saved = "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n\
                     -A FORWARD -i docker0 -o eth0 -j ACCEPT\nCOMMIT\n";
        let found = find_legacy_obstacle(saved, "tabc123", "eth0").unwrap();
        assert!(found.remedy.starts_with("iptables-legacy -I FORWARD -i 'tabc123+' -o 'eth0' -j ACCEPT"), "{found:?}");
        let mended = saved.replace(
            "-A FORWARD",
            "-A FORWARD -i tabc123+ -o eth0 -j ACCEPT\n-A FORWARD -o tabc123+ -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A FORWARD",
        );
        assert_eq!(find_legacy_obstacle(&mended, "tabc123", "eth0"), None);
        assert_eq!(find_legacy_obstacle("*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n", "tabc123", "eth0"), None);
        assert_eq!(
            find_legacy_obstacle("*mangle\n:FORWARD DROP [0:0]\nCOMMIT\n", "tabc123", "eth0"),
            None,
            "another table"
        );
        assert_eq!(find_legacy_obstacle("", "tabc123", "eth0"), None);
    }
}
