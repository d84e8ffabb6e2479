use std::os::unix::fs::PermissionsExt;

use super::*;

const YAML: &str = r#"
cdiVersion: "0.6.0"
kind: nvidia.com/gpu
annotations: {unknown: things, are: left alone}
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
  deviceNodes: [{path: /dev/nvidiactl, hostPath: /dev/null}]
  mounts:
    - {hostPath: /usr/lib/libcuda.so.1, containerPath: /usr/lib/libcuda.so.1, options: [ro, nosuid]}
  hooks:
    - hookName: createContainer
      path: /usr/bin/nvidia-ctk
      args: [nvidia-ctk, hook, create-symlinks, --link, "libcuda.so.1::/usr/lib/libcuda.so", "--link=a::/usr/lib/b"]
    - {hookName: createContainer, path: /usr/bin/nvidia-ctk, args: [nvidia-ctk, hook, update-ldcache, --folder, /usr/lib]}
    - {hookName: createContainer, path: /bin/evil, args: [evil, --link, "x::/y"]}
devices:
  - {name: "0", containerEdits: {deviceNodes: [{path: /dev/nvidia0, major: 195, minor: 0, permissions: rwm}]}}
  - {name: GPU-1, containerEdits: {env: [ONE=1], deviceNodes: [{path: /dev/nvidia1, major: 195, minor: 1}]}}
"#;

fn write(directory: &Path, name: &str, text: &str) {
    fs::write(directory.join(name), text).unwrap();
    fs::set_permissions(directory.join(name), fs::Permissions::from_mode(0o644)).unwrap();
}

fn one(directory: &Path, gpu: &str) -> Result<(Edits, Vec<String>), Unusable> {
    Directories(vec![directory.to_owned()]).resolve(&[vec![gpu.to_owned()]])
}

#[test]
fn specification_is_resolved() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "nvidia.yaml", YAML);
    let names = |all: &[&[&str]]| -> Vec<Vec<String>> {
        all.iter().map(|names| names.iter().map(|name| (*name).to_owned()).collect()).collect()
    };
    let directories = Directories(vec!["/nowhere".into(), directory.path().to_owned()]);
    let (edits, unnamed) = directories.resolve(&names(&[&["GPU-0", "0"], &["GPU-1", "1"], &["GPU-2", "2"]])).unwrap();
    assert_eq!(unnamed, ["GPU-2"]);
    let nodes: Vec<_> = edits.nodes.iter().map(|node| (node.path.to_str().unwrap(), node.major, node.minor)).collect();
    assert_eq!(nodes, [("/dev/nvidiactl", 1, 3), ("/dev/nvidia0", 195, 0), ("/dev/nvidia1", 195, 1)]);
    assert!(edits.nodes.iter().all(|node| node.access == "rw" && node.mode == 0o666), "no devices are created inside");
    assert_eq!(edits.env, [("NVIDIA_VISIBLE_DEVICES".into(), "void".into()), ("ONE".into(), "1".into())]);
    let library = PathBuf::from("/usr/lib/libcuda.so.1");
    assert_eq!(edits.mounts, [Mount { from: library.clone(), to: library }]);
    let links = [("libcuda.so.1".into(), "/usr/lib/libcuda.so".into()), ("a".into(), "/usr/lib/b".into())];
    assert_eq!((edits.links.as_slice(), edits.libraries.as_slice()), (&links[..], &[PathBuf::from("/usr/lib")][..]));
}

/// A later directory takes precedence, and one directory must not name a device twice.
#[test]
fn later_directory_takes_precedence() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let text = |value: &str| {
        format!(
            r#"{{"cdiVersion": "1.0.0", "kind": "vendor.example/gpu",
                "devices": [{{"name": "g", "containerEdits": {{"env": ["A={value}"]}}}}]}}"#
        )
    };
    write(first.path(), "a.json", &text("first"));
    write(second.path(), "a.json", &text("second"));
    let both = Directories(vec![first.path().to_owned(), second.path().to_owned()]);
    let (edits, _) = both.resolve(&[vec!["g".into()]]).unwrap();
    assert_eq!(edits.env, [("A".into(), "second".into())]);
    write(second.path(), "b.json", &text("third"));
    let why = both.resolve(&[vec!["g".into()]]).unwrap_err().to_string();
    assert!(why.contains("two CDI specifications") && why.contains("b.json"), "{why}");
}

#[test]
fn dangerous_edits_are_refused() {
    let wrong = [
        r#""deviceNodes": [{"path": "/dev/../etc/x", "major": 1, "minor": 3}]"#,
        r#""deviceNodes": [{"path": "dev/x", "major": 1, "minor": 3}]"#,
        r#""deviceNodes": [{"path": "/dev", "major": 1, "minor": 3}]"#,
        r#""deviceNodes": [{"path": "/etc/x", "major": 1, "minor": 3}]"#,
        r#""deviceNodes": [{"path": "/dev/null", "major": 1, "minor": 5}]"#,
        r#""deviceNodes": [{"path": "/dev/pts/0", "major": 1, "minor": 5}]"#,
        r#""deviceNodes": [{"path": "/dev/x", "type": "b", "major": 8, "minor": 0}]"#,
        r#""deviceNodes": [{"path": "/dev/x", "type": "p"}]"#,
        r#""deviceNodes": [{"path": "/dev/x", "major": 99999999, "minor": 0}]"#,
        r#""deviceNodes": [{"path": "/dev/x", "major": 1, "minor": -1}]"#,
        r#""deviceNodes": [{"path": "/dev/x", "hostPath": "/etc/passwd"}]"#,
        r#""deviceNodes": [{"path": "/dev/x", "hostPath": "/nowhere"}]"#,
        r#""deviceNodes": [{"path": "/dev/x", "hostPath": "null"}]"#,
        r#""deviceNodes": [{"path": "/dev/x", "major": 1, "minor": 3, "permissions": "m"}]"#,
        r#""deviceNodes": [{"path": "/dev/x", "major": 1, "minor": 3, "uid": 99999999}]"#,
        r#""deviceNodes": [{"path": "/dev/x", "major": 1, "minor": 3}, {"path": "/dev/x", "major": 1, "minor": 5}]"#,
        r#""mounts": [{"hostPath": "/etc/../root", "containerPath": "/x"}]"#,
        r#""mounts": [{"hostPath": "etc", "containerPath": "/x"}]"#,
        r#""mounts": [{"hostPath": "/etc", "containerPath": "/"}]"#,
        r#""mounts": [{"hostPath": "/etc", "containerPath": "/proc/x"}]"#,
        r#""mounts": [{"hostPath": "/etc", "containerPath": "/dev/x"}]"#,
        r#""mounts": [{"hostPath": "/etc", "containerPath": "/.tarn/guest"}]"#,
        r#""mounts": [{"hostPath": "/etc", "containerPath": "//x/../.."}]"#,
        r#""env": ["no equals sign"]"#,
        r#""env": ["=x"]"#,
        r#""env": ["1A=x"]"#,
        r#""env": ["A=x\ny"]"#,
        r#""hooks": [{"args": ["create-symlinks", "--link", "x::../y"]}]"#,
        r#""hooks": [{"args": ["create-symlinks", "--link", "x::/dev/y"]}]"#,
    ];
    for edits in wrong {
        let directory = tempfile::tempdir().unwrap();
        let device = format!(r#"{{"name": "g", "containerEdits": {{{edits}}}}}"#);
        let text = format!(r#"{{"cdiVersion": "0.6.0", "kind": "vendor.example/gpu", "devices": [{device}]}}"#);
        write(directory.path(), "x.json", &text);
        let refused = one(directory.path(), "g");
        assert!(refused.as_ref().is_err_and(|why| why.to_string().contains("x.json")), "{edits}: {refused:?}");
    }
}

#[test]
fn invalid_specification_is_skipped() {
    let good = r#"{"cdiVersion": "0.6.0", "kind": "vendor.example/gpu", "devices": [{"name": "g"}]}"#;
    let many = format!(
        "{{\"cdiVersion\": \"0.6.0\", \"kind\": \"v/gpu\", \"devices\": [{}]}}",
        "{\"name\":\"g\"},".repeat(5000)
    );
    let wrong = [
        "".to_owned(),
        "[".to_owned(),
        good.replace("0.6.0", "9.0.0"),
        good.replace("0.6.0", "0.2.0"),
        good.replace("vendor.example/gpu", "gpu"),
        good.replace("vendor.example/gpu", "vendor.example/nic"),
        good.replace("\"g\"", "\"../g\""),
        many.replace(",]", "]"),
        format!("{good}{}", " ".repeat(5 << 20)),
    ];
    for text in wrong {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "x.json", &text);
        let (edits, unnamed) = one(directory.path(), "g").unwrap();
        assert_eq!((edits, unnamed), (Edits::default(), vec!["g".to_owned()]), "{}", &text[..text.len().min(100)]);
    }
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "x.json", good);
    assert_eq!(one(directory.path(), "g").unwrap().1, Vec::<String>::new());
    fs::set_permissions(directory.path().join("x.json"), fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(one(directory.path(), "g").unwrap().1, ["g"], "a world-writable file is not trusted");
}

#[test]
fn unusable_gpus_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let there = directory.path().join("there");
    fs::write(&there, "").unwrap();
    let mount = |path: &Path| format!(r#""mounts": [{{"hostPath": {path:?}, "containerPath": "/x"}}]"#);
    let devices = [
        ("well", mount(&there)),
        ("no-file", mount(&directory.path().join("not there"))),
        ("no-node", r#""deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/not-there"}]"#.into()),
        ("wrong", r#""env": ["x"]"#.into()),
    ];
    let devices =
        devices.map(|(name, edits)| format!(r#"{{"name": "{name}", "containerEdits": {{{edits}}}}}"#)).join(",");
    let text = format!(r#"{{"cdiVersion": "0.6.0", "kind": "vendor.example/gpu", "devices": [{devices}]}}"#);
    write(directory.path(), "x.json", &text);
    let gpus = ["well", "GPU-1 well", "no-file", "no-node", "wrong", "unknown"];
    let gpus = gpus.map(|names| names.split(' ').map(str::to_owned).collect());
    let found = Directories(vec![directory.path().to_owned()]).check(&gpus);
    let is_as_it_should = matches!(
        found.as_slice(),
        [
            None,
            None,
            Some(Unusable::Absent(_)),
            Some(Unusable::Absent(_)),
            Some(Unusable::Wrong(_)),
            Some(Unusable::Unnamed(_))
        ]
    );
    assert!(is_as_it_should, "{found:?}");
}
