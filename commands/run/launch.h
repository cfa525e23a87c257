// Facts about this process that the launcher (mpirun, srun) puts into its environment, known before MPI_Init. For
// messages that only one rank is to print, and for commands that need no MPI.
#pragma once

namespace train_gpt {

struct Launch {
  int rank = 0;   // 0 without a launcher
  int ranks = 1;  // 1 without a launcher
  bool launched = false;
};

// Reads the variables of MPICH's and Intel's hydra, Open MPI, PMIx and Slurm, in this order.
Launch launch_from_environment();

}  // namespace train_gpt
