//! The file that holds the fake's world. It is locked against other processes and replaced as a whole, so a crash at
//! any moment leaves either the old world or the new one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use tarn_base::files::replace_file;

use super::world::World;
use crate::{Error, Observed};

const NAME: &str = "fake-world.json";
const TEMPORARY: &str = "fake-world.json.tmp";
const LOCK: &str = "fake-world.lock";

/// Reads the world that a [`FakeDriver`](super::FakeDriver) keeps in `dir`, for tests that compare it with the
/// database.
///
/// It takes no lock, because the file is only ever replaced as a whole. A missing world is an error and not an empty
/// result: a test that reads the wrong directory would otherwise pass.
pub fn read_world(dir: impl AsRef<Path>) -> io::Result<Observed> {
    let bytes = fs::read(dir.as_ref().join(NAME))?;
    let world: World =
        serde_json::from_slice(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(world.observe())
}

/// The world on disk. All of its functions block.
pub(super) struct WorldFile {
    dir: PathBuf,
}

impl WorldFile {
    /// Opens the world in `dir`, creating an empty one if there is none.
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        fs::create_dir_all(dir).map_err(|error| world_file_error("make the directory", dir, error))?;
        let file = WorldFile { dir: dir.to_owned() };
        let _lock = file.lock()?;
        let path = file.path();
        if path.try_exists().map_err(|error| world_file_error("look for", &path, error))? {
            file.read()?;
        } else {
            file.replace(&World::default())?;
        }
        Ok(file)
    }

    /// Reads the world under the lock.
    pub(super) fn read_locked(&self) -> Result<World, Error> {
        let _lock = self.lock()?;
        self.read()
    }

    /// Changes the world under the lock, which excludes all other processes.
    pub(super) fn change(&self, work: impl FnOnce(&mut World)) -> Result<(), Error> {
        let _lock = self.lock()?;
        let mut world = self.read()?;
        work(&mut world);
        // Written even when nothing changed: the process that made the previous change may have died before it was
        // durable.
        self.replace(&world)
    }

    /// Waits for the lock. It is released when the file is closed, also by the death of the process.
    fn lock(&self) -> Result<File, Error> {
        let path = self.dir.join(LOCK);
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let locked = file.and_then(|file| file.lock().map(|()| file));
        locked.map_err(|error| world_file_error("lock", &path, error))
    }

    fn read(&self) -> Result<World, Error> {
        let path = self.path();
        let bytes = fs::read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Permanent("the fake's world is gone".to_owned()),
            _ => world_file_error("read", &path, error),
        })?;
        serde_json::from_slice(&bytes).map_err(|error| {
            tracing::error!(path = %path.display(), %error, "the fake's world is damaged; remove the file for an empty one");
            Error::Permanent("the fake's world is damaged and was left as it is; the log has its path".to_owned())
        })
    }

    fn replace(&self, world: &World) -> Result<(), Error> {
        let path = self.path();
        let bytes = serde_json::to_vec(world).expect("a world has only text keys and plain values");
        let replaced = replace_file(&path, &self.dir.join(TEMPORARY), &bytes, 0o666);
        replaced.map_err(|error| world_file_error("replace", &path, error))
    }

    fn path(&self) -> PathBuf {
        self.dir.join(NAME)
    }
}

/// A full disk or too many open files may pass, so file errors are worth a retry. The path is for the operator and goes
/// to the log.
fn world_file_error(what: &str, path: &Path, error: io::Error) -> Error {
    tracing::warn!(path = %path.display(), %error, "the fake could not {what} its world");
    Error::Retry(format!("the fake could not {what} its world"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VolumeSpec;

    fn volume(size_bytes: u64) -> VolumeSpec {
        VolumeSpec { id: "s-000000000001".parse().unwrap(), size_bytes }
    }

    #[test]
    fn crash_before_the_rename_keeps_the_old_world() {
        let dir = tempfile::tempdir().unwrap();
        let file = WorldFile::open(dir.path()).unwrap();
        file.change(|world| drop(world.ensure_volume(&volume(1)))).unwrap();
        let old = read_world(dir.path()).unwrap();

        fs::write(dir.path().join(TEMPORARY), b"{\"instances\":").unwrap();
        assert_eq!(read_world(dir.path()).unwrap(), old);

        let again = WorldFile::open(dir.path()).unwrap();
        assert_eq!(again.read_locked().unwrap().observe(), old);
        again.change(|world| drop(world.ensure_volume(&volume(3)))).unwrap();
        assert_eq!(read_world(dir.path()).unwrap().volumes[&volume(3).id].size_bytes, 3);
        assert!(!dir.path().join(TEMPORARY).exists());
    }

    #[test]
    fn damaged_world_is_reported_and_never_overwritten() {
        for damage in
            ["", "{", "[]", r#"{"instances":{},"volumes":{},"more":1}"#, r#"{"instances":{"x":{}},"volumes":{}}"#]
        {
            let dir = tempfile::tempdir().unwrap();
            let file = WorldFile::open(dir.path()).unwrap();
            let path = dir.path().join(NAME);
            fs::write(&path, damage).unwrap();
            let errors = [
                file.change(|_| ()).unwrap_err(),
                file.read_locked().err().unwrap(),
                WorldFile::open(dir.path()).err().unwrap(),
            ];
            for error in errors {
                assert!(matches!(&error, Error::Permanent(why) if why.contains("damaged")), "{damage:?}: {error}");
            }
            assert_eq!(read_world(dir.path()).unwrap_err().kind(), io::ErrorKind::InvalidData);
            assert_eq!(fs::read_to_string(&path).unwrap(), damage);
        }
    }

    #[test]
    fn missing_world_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let file = WorldFile::open(dir.path()).unwrap();
        fs::remove_file(dir.path().join(NAME)).unwrap();
        assert!(matches!(file.change(|_| ()), Err(Error::Permanent(why)) if why.contains("gone")));
        assert_eq!(read_world(dir.path()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
