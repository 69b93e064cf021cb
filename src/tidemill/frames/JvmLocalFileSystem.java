package tidemill;

import java.io.IOException;
import java.lang.reflect.Method;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** Hadoop's local file system, which sets permissions within the JVM and starts no `chmod`. */
public class JvmLocalFileSystem extends LocalFileSystem {
    public JvmLocalFileSystem() {
        super(new WithoutProcesses());
    }

    /** Has each later `FileSystem.get` of a `file:` path give this one. */
    public static void install(Configuration settings) throws Exception {
        URI root = URI.create("file:///");
        FileSystem files = new JvmLocalFileSystem();
        files.initialize(root, settings);
        Method add = FileSystem.class.getDeclaredMethod(
            "addFileSystemForTesting", new Class[] {URI.class, Configuration.class, FileSystem.class});
        add.setAccessible(true);
        add.invoke(null, new Object[] {root, settings, files});
    }

    private static class WithoutProcesses extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission);
                return;
            }
            Files.setPosixFilePermissions(
                pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
        }
    }
}
