package launch

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Memory returns a line of a file in /proc/PID in bytes, such as VmHWM of status or Pss of smaps_rollup. It returns
// 0 without such a line. In Pss, a page that n processes share counts for 1/n.
func Memory(pid int, file, line string) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file)) // a process that has ended has no memory
	_, after, _ := strings.Cut("\n"+string(text), "\n"+line+":")
	kB := 0
	_, _ = fmt.Sscan(after, &kB)
	return kB << 10
}

// CPUTime returns the processor time of all threads of a process, in Linux's ticks of 10 ms. It returns 0 for an
// unknown process.
func CPUTime(pid int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // after the name of the program
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// OpenFiles returns the number of open files of a process. It returns 0 for an unknown process.
func OpenFiles(pid int) int {
	open, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(open)
}
