package tidemill;

import java.io.IOException;
import java.lang.reflect.Method;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.LinkOption;
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

    /** Puts one into Hadoop's cache for `file:` paths; returns false where a site has settings of its own. */
    public static Boolean install(Configuration settings) throws Exception {
        URI root = URI.create("file:///");
        if (settings.get("fs.file.impl") != null || settings.getBoolean("fs.file.impl.disable.cache", false)) {
            return Boolean.FALSE;
        }
        // The first `get` has Hadoop close all file systems of its cache at the end of the JVM.
        FileSystem.get(root, settings);
        FileSystem files = new JvmLocalFileSystem();
        files.initialize(root, settings);
        Method add = FileSystem.class.getDeclaredMethod(
            "addFileSystemForTesting", new Class[] {URI.class, Configuration.class, FileSystem.class});
        add.setAccessible(true);
        add.invoke(null, new Object[] {root, settings, files});
        return Boolean.TRUE;
    }

    private static class WithoutProcesses extends RawLocalFileSystem {
        /** What `chmod` leaves on a folder if it is not named: new files in the folder get the group of the folder. */
        private static final int KEPT = 06000;

        public void setPermission(Path path, FsPermission permission) throws IOException {
            java.nio.file.Path file = pathToFile(path).toPath();
            int mode = permission.toShort();
            if (Files.isDirectory(file, new LinkOption[0])) {
                mode |= ((Integer) Files.getAttribute(file, "unix:mode", new LinkOption[0])).intValue() & KEPT;
            }
            Files.setAttribute(file, "unix:mode", Integer.valueOf(mode), new LinkOption[0]);
        }
    }
}
