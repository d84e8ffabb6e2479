//! What a backup consists of. The manifest is written last, and its checksum is in a file beside it.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tarn_base::files;
use tarn_model::ids::VolumeId;

use super::sums::FileSum;

/// The version of the format.
pub(in crate::backup) const FORMAT: u32 = 1;

/// The names of the files of a backup.
pub(in crate::backup) const MANIFEST: &str = "manifest.json";
const MANIFEST_SUM: &str = "manifest.blake3";
pub(in crate::backup) const SQLITE: &str = "tarn.db";
pub(in crate::backup) const DUMP: &str = "tarn.pgdump";
pub(in crate::backup) const LIST: &str = "objects.list";
pub(in crate::backup) const SEALED_KEY: &str = "secret.key.sealed";

/// A backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::backup) struct Manifest {
    pub(in crate::backup) format: u32,
    pub(in crate::backup) name: String,
    /// When the database was copied, in microseconds since 1970, and for people.
    pub(in crate::backup) created_us: i64,
    pub(in crate::backup) created: String,
    /// The version of the program that made it.
    pub(in crate::backup) tarn: String,
    /// The schema of the database.
    pub(in crate::backup) schema: i64,
    pub(in crate::backup) database: DatabaseKind,
    pub(in crate::backup) database_file: FileSum,
    /// The encrypted master key; absent if it was left out.
    pub(in crate::backup) secret_key: Option<FileSum>,
    /// What identifies the master key; it reveals nothing about it.
    pub(in crate::backup) key_fingerprint: Option<String>,
    pub(in crate::backup) objects: ObjectsCopy,
    /// The volumes, if they were copied.
    pub(in crate::backup) volumes: Vec<VolumeCopy>,
    /// Why a volume was left out, by id.
    pub(in crate::backup) volumes_left_out: Vec<String>,
}

/// The kind of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::backup) enum DatabaseKind {
    Sqlite,
    Postgresql,
}

/// The contents of objects. They are outside of the directory of the backup, because backups share them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::backup) struct ObjectsCopy {
    pub(in crate::backup) files: u64,
    pub(in crate::backup) bytes: u64,
    /// The file with a line for each: its id, its size, its MD5.
    pub(in crate::backup) list: FileSum,
    /// Files that the database names and that were damaged or missing before the backup.
    pub(in crate::backup) damaged: Vec<String>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::backup) struct VolumeCopy {
    pub(in crate::backup) id: String,
    pub(in crate::backup) file: FileSum,
}

impl VolumeCopy {
    /// The name of the file of a volume.
    pub(in crate::backup) fn file_name(id: &str) -> String {
        format!("{id}.volume")
    }
}

impl Manifest {
    /// Writes the manifest and its checksum.
    pub(in crate::backup) fn write(&self, directory: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        let sum = blake3::hash(text.as_bytes()).to_hex();
        files::write_file(&directory.join(MANIFEST_SUM), sum.as_bytes(), 0o600)?;
        files::write_file(&directory.join(MANIFEST), text.as_bytes(), 0o600)
    }

    /// Reads a manifest. The error says what is wrong with it.
    pub(in crate::backup) fn read(directory: &Path) -> Result<Manifest, String> {
        let read = |name: &str| {
            std::fs::read_to_string(directory.join(name)).map_err(|error| format!("{name} cannot be read: {error}"))
        };
        let (text, sum) = (read(MANIFEST)?, read(MANIFEST_SUM)?);
        if blake3::hash(text.as_bytes()).to_hex().as_str() != sum.trim() {
            return Err(format!("{MANIFEST} was changed"));
        }
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let version: Version = serde_json::from_str(&text).map_err(|error| format!("{MANIFEST}: {error}"))?;
        if version.format != FORMAT {
            return Err(format!("it has format {}, which a newer program understands", version.format));
        }
        let manifest: Manifest = serde_json::from_str(&text).map_err(|error| format!("{MANIFEST}: {error}"))?;
        match manifest.foreign_name() {
            Some(name) => Err(format!("{MANIFEST} names {name:?}, which is no file of a backup")),
            None => Ok(manifest),
        }
    }

    /// Returns a name that does not belong into a backup. A backup may come from elsewhere, and a restore by root must
    /// read nothing outside of its directory.
    fn foreign_name(&self) -> Option<&str> {
        let database = match self.database {
            DatabaseKind::Sqlite => SQLITE,
            DatabaseKind::Postgresql => DUMP,
        };
        let fixed = [(&self.database_file, database), (&self.objects.list, LIST)].into_iter();
        let mut fixed = fixed.chain(self.secret_key.as_ref().map(|key| (key, SEALED_KEY)));
        if let Some((file, _)) = fixed.find(|(file, name)| file.name != *name) {
            return Some(&file.name);
        }
        let is_wrong = |volume: &&VolumeCopy| {
            volume.id.parse::<VolumeId>().is_err() || volume.file.name != VolumeCopy::file_name(&volume.id)
        };
        self.volumes.iter().find(is_wrong).map(|volume| volume.file.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(name: &str) -> FileSum {
        FileSum { name: name.to_owned(), bytes: 0, blake3: String::new() }
    }

    /// A manifest whose files are outside of the backup is refused, also if its checksum is right.
    #[test]
    fn files_are_those_of_the_backup() {
        let place = tempfile::tempdir().unwrap();
        let good = Manifest {
            format: FORMAT,
            name: "20261119T041500Z".to_owned(),
            created_us: 0,
            created: String::new(),
            tarn: String::new(),
            schema: 1,
            database: DatabaseKind::Sqlite,
            database_file: sum(SQLITE),
            secret_key: Some(sum(SEALED_KEY)),
            key_fingerprint: None,
            objects: ObjectsCopy { files: 0, bytes: 0, list: sum(LIST), damaged: Vec::new() },
            volumes: vec![VolumeCopy { id: "s-000000000001".to_owned(), file: sum("s-000000000001.volume") }],
            volumes_left_out: Vec::new(),
        };
        good.write(place.path()).unwrap();
        assert_eq!(Manifest::read(place.path()).unwrap(), good);
        let changes: [fn(&mut Manifest); 5] = [
            |manifest| manifest.database_file.name = "../../tarn.db".to_owned(),
            |manifest| manifest.objects.list.name = "/etc/shadow".to_owned(),
            |manifest| manifest.secret_key = Some(sum("other")),
            |manifest| manifest.volumes[0].file.name = "/etc/shadow".to_owned(),
            |manifest| manifest.volumes[0].id = "../../x".to_owned(),
        ];
        for change in changes {
            let mut wrong = good.clone();
            change(&mut wrong);
            wrong.write(place.path()).unwrap();
            assert!(Manifest::read(place.path()).unwrap_err().contains("is no file of a backup"));
        }
    }
}
